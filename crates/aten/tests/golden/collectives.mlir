// torchtpu::all_reduce: input = tensor<8x3xf32>, groups = [], group_size = 4, reduce_op = "avg"
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8x3xf32> ) -> (tensor<8x3xf32>) {
%v4 = "stablehlo.all_reduce"(%v0) ({
^bb0(%v1: tensor<f32>, %v2: tensor<f32>):
%v3 = "stablehlo.add"(%v1, %v2) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v3) : (tensor<f32>) -> ()
}) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x3xf32>) -> (tensor<8x3xf32>)
%v5 = "stablehlo.constant"() {value = dense<0x40800000> : tensor<f32>} : () -> tensor<f32>
%v6 = "stablehlo.broadcast_in_dim"(%v5) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<8x3xf32>
%v7 = "stablehlo.divide"(%v4, %v6) {} : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<8x3xf32>
"func.return"(%v7) : (tensor<8x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [8, 3] }, dtype: F32, sizes: [8, 3], strides: [3, 1], extents: [] }

// torchtpu::reduce_scatter: input = tensor<8x3xf32>, groups = [0, 2, 1, 3], group_size = 2, reduce_op = "max"
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8x3xf32> ) -> (tensor<4x3xf32>) {
%v4 = "stablehlo.reduce_scatter"(%v0) ({
^bb0(%v1: tensor<f32>, %v2: tensor<f32>):
%v3 = "stablehlo.maximum"(%v1, %v2) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v3) : (tensor<f32>) -> ()
}) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>} : (tensor<8x3xf32>) -> (tensor<4x3xf32>)
"func.return"(%v4) : (tensor<4x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4, 3] }, dtype: F32, sizes: [4, 3], strides: [3, 1], extents: [] }

// torchtpu::reduce_scatter: input = tensor<8x64xf32>, groups = [], group_size = 4, reduce_op = "sum"
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8x64xf32> ) -> (tensor<2x64xf32>) {
%v4 = "stablehlo.reduce_scatter"(%v0) ({
^bb0(%v1: tensor<f32>, %v2: tensor<f32>):
%v3 = "stablehlo.add"(%v1, %v2) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v3) : (tensor<f32>) -> ()
}) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x64xf32>) -> (tensor<2x64xf32>)
"func.return"(%v4) : (tensor<2x64xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 64] }, dtype: F32, sizes: [2, 64], strides: [64, 1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8x64xf32> ) -> (tensor<2x64xf32>) {
%v1 = "stablehlo.reshape"(%v0) {} : (tensor<8x64xf32>) -> tensor<4x1x128xf32>
%v5 = "stablehlo.reduce_scatter"(%v1) ({
^bb0(%v2: tensor<f32>, %v3: tensor<f32>):
%v4 = "stablehlo.add"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v4) : (tensor<f32>) -> ()
}) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4x1x128xf32>) -> (tensor<1x1x128xf32>)
%v6 = "stablehlo.reshape"(%v5) {} : (tensor<1x1x128xf32>) -> tensor<2x64xf32>
"func.return"(%v6) : (tensor<2x64xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 64] }, dtype: F32, sizes: [2, 64], strides: [64, 1], extents: [] }

// torchtpu::all_gather: input = tensor<8x3xf32>, groups = [0, 1, 2, 3], group_size = 2
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8x3xf32> ) -> (tensor<16x3xf32>) {
%v1 = "stablehlo.all_gather"(%v0) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>} : (tensor<8x3xf32>) -> tensor<16x3xf32>
"func.return"(%v1) : (tensor<16x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [16, 3] }, dtype: F32, sizes: [16, 3], strides: [3, 1], extents: [] }

// torchtpu::all_to_all: input = tensor<8x3xf32>, groups = [], group_size = 4
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8x3xf32> ) -> (tensor<8x3xf32>) {
%v1 = "stablehlo.all_to_all"(%v0) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x3xf32>) -> tensor<8x3xf32>
"func.return"(%v1) : (tensor<8x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [8, 3] }, dtype: F32, sizes: [8, 3], strides: [3, 1], extents: [] }

// torchtpu::permute_replicas: input = tensor<3xf32>, pairs = [0, 1, 1, 0]
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<3xf32> ) -> (tensor<3xf32>) {
%v1 = "stablehlo.collective_permute"(%v0) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>} : (tensor<3xf32>) -> tensor<3xf32>
"func.return"(%v1) : (tensor<3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3] }, dtype: F32, sizes: [3], strides: [1], extents: [] }
