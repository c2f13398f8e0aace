// add.Tensor over storage 0 = tensor<4x6xf32>: self = tensor<4xf32> in storage 0, strides [6], offset 2, other = Int(1), alpha = Int(1); writes self
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4x6xf32> ) -> (tensor<4x6xf32>) {
%v1 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 2>, limit_indices = array<i64: 4, 3>, strides = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<4x1xf32>
%v2 = "stablehlo.reshape"(%v1) {} : (tensor<4x1xf32>) -> tensor<4xf32>
%v3 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v5 = "stablehlo.add"(%v2, %v4) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v6 = "stablehlo.reshape"(%v5) {} : (tensor<4xf32>) -> tensor<4x1xf32>
%v7 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v8 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
%v9 = "stablehlo.optimization_barrier"(%v6) {} : (tensor<4x1xf32>) -> tensor<4x1xf32>
%v10 = "stablehlo.dynamic_update_slice"(%v0, %v9, %v7, %v8) {} : (tensor<4x6xf32>, tensor<4x1xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
"func.return"(%v10) : (tensor<4x6xf32>) -> ()
}
}
// output 0: Updated { storage: 0, base: Type { dtype: F32, dims: [4, 6] } }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4x6xf32> ) -> (tensor<4x6xf32>) {
%v1 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 2>, limit_indices = array<i64: 4, 3>, strides = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<4x1xf32>
%v2 = "stablehlo.reshape"(%v1) {} : (tensor<4x1xf32>) -> tensor<4xf32>
%v3 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v5 = "stablehlo.add"(%v2, %v4) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v6 = "stablehlo.reshape"(%v5) {} : (tensor<4xf32>) -> tensor<4x1xf32>
%v7 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v8 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
%v9 = "stablehlo.dynamic_update_slice"(%v0, %v6, %v7, %v8) {} : (tensor<4x6xf32>, tensor<4x1xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
"func.return"(%v9) : (tensor<4x6xf32>) -> ()
}
}
// output 0: Updated { storage: 0, base: Type { dtype: F32, dims: [4, 6] } }

// mul.Tensor over storage 0 = tensor<24xf32>: self = tensor<6xf32> in storage 0, strides [1], offset an input, other = Int(2); writes self
// parameter 0: Storage(0)
// parameter 1: Offset(0)
module @torchtpu {
func.func public @main(%v0: tensor<24xf32> , %v1: tensor<i64> ) -> (tensor<24xf32>) {
%v2 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.divide"(%v1, %v2) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v4 = "stablehlo.constant"() {value = dense<24> : tensor<i64>} : () -> tensor<i64>
%v5 = "stablehlo.remainder"(%v3, %v4) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v6 = "stablehlo.dynamic_slice"(%v0, %v5) {slice_sizes = array<i64: 6>} : (tensor<24xf32>, tensor<i64>) -> tensor<6xf32>
%v7 = "stablehlo.constant"() {value = dense<0x40000000> : tensor<f32>} : () -> tensor<f32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<6xf32>
%v9 = "stablehlo.multiply"(%v6, %v8) {} : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
%v10 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v11 = "stablehlo.divide"(%v1, %v10) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v12 = "stablehlo.constant"() {value = dense<24> : tensor<i64>} : () -> tensor<i64>
%v13 = "stablehlo.remainder"(%v11, %v12) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v14 = "stablehlo.optimization_barrier"(%v9) {} : (tensor<6xf32>) -> tensor<6xf32>
%v15 = "stablehlo.dynamic_update_slice"(%v0, %v14, %v13) {} : (tensor<24xf32>, tensor<6xf32>, tensor<i64>) -> tensor<24xf32>
"func.return"(%v15) : (tensor<24xf32>) -> ()
}
}
// output 0: Updated { storage: 0, base: Type { dtype: F32, dims: [24] } }

// exp over storage 0 = tensor<2x3xf32>: self = tensor<3x2xf32> in storage 0, strides [1, 3], offset 0, out = tensor<3x2xf32>; writes out
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<3x2xf32>) {
%v1 = "stablehlo.transpose"(%v0) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
%v2 = "stablehlo.exponential"(%v1) {} : (tensor<3x2xf32>) -> tensor<3x2xf32>
"func.return"(%v2) : (tensor<3x2xf32>) -> ()
}
}
// output 0: Updated { storage: 1, base: Type { dtype: F32, dims: [3, 2] } }

// real over storage 0 = tensor<3xcomplex<f32>>: self = the conjugate of tensor<3xcomplex<f32>> in storage 0, strides [1], offset 0
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<3xcomplex<f32>> ) -> (tensor<3xf32>) {
%v1 = "stablehlo.real"(%v0) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v2 = "stablehlo.imag"(%v0) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v3 = "stablehlo.negate"(%v2) {} : (tensor<3xf32>) -> tensor<3xf32>
%v4 = "stablehlo.complex"(%v1, %v3) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xcomplex<f32>>
%v5 = "stablehlo.real"(%v4) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
"func.return"(%v5) : (tensor<3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3] }, dtype: F32, sizes: [3], strides: [1], extents: [] }

// clone over storage 0 = tensor<3xcomplex<f32>>: self = the conjugate of tensor<3xcomplex<f32>> in storage 0, strides [1], offset 0
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<3xcomplex<f32>> ) -> (tensor<3xcomplex<f32>>) {
%v1 = "stablehlo.real"(%v0) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v2 = "stablehlo.imag"(%v0) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v3 = "stablehlo.negate"(%v2) {} : (tensor<3xf32>) -> tensor<3xf32>
%v4 = "stablehlo.complex"(%v1, %v3) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xcomplex<f32>>
"func.return"(%v4) : (tensor<3xcomplex<f32>>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: C64, dims: [3] }, dtype: C64, sizes: [3], strides: [1], extents: [] }

// clone over storage 0 = tensor<6xf32>: self = tensor<5x2xf32> in storage 0, strides [1, 1], offset 0
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<6xf32> ) -> (tensor<5x2xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0> : tensor<2xi32>} : () -> tensor<2xi32>
%v2 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2xi32>
%v3 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2xi32>
%v5 = "stablehlo.multiply"(%v2, %v4) {} : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
%v6 = "stablehlo.add"(%v1, %v5) {} : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
%v7 = "stablehlo.gather"(%v0, %v6) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 5>, indices_are_sorted = false} : (tensor<6xf32>, tensor<2xi32>) -> tensor<2x5xf32>
%v8 = "stablehlo.transpose"(%v7) {permutation = array<i64: 1, 0>} : (tensor<2x5xf32>) -> tensor<5x2xf32>
"func.return"(%v8) : (tensor<5x2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [5, 2] }, dtype: F32, sizes: [5, 2], strides: [2, 1], extents: [] }

// clone over storage 0 = tensor<4xf32>: self = tensor<4xi32> in storage 0, strides [1], offset 0
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4xf32> ) -> (tensor<4xi32>) {
%v1 = "stablehlo.bitcast_convert"(%v0) {} : (tensor<4xf32>) -> tensor<4xi32>
"func.return"(%v1) : (tensor<4xi32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I32, dims: [4] }, dtype: I32, sizes: [4], strides: [1], extents: [] }

// _foreach_neg over storage 0 = tensor<4x6xf32>: self = tensor<4x3xf32> in storage 0, strides [6, 1], offset 0 and tensor<4x3xf32> in storage 0, strides [6, 1], offset 3; writes self
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4x6xf32> ) -> (tensor<4x6xf32>) {
%v1 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 4, 3>, strides = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<4x3xf32>
%v2 = "stablehlo.negate"(%v1) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
%v3 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 3>, limit_indices = array<i64: 4, 6>, strides = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<4x3xf32>
%v4 = "stablehlo.negate"(%v3) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
%v5 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v7 = "stablehlo.optimization_barrier"(%v2) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
%v8 = "stablehlo.dynamic_update_slice"(%v0, %v7, %v5, %v6) {} : (tensor<4x6xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
%v9 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v10 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v11 = "stablehlo.optimization_barrier"(%v4) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
%v12 = "stablehlo.dynamic_update_slice"(%v8, %v11, %v9, %v10) {} : (tensor<4x6xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
"func.return"(%v12) : (tensor<4x6xf32>) -> ()
}
}
// output 0: Updated { storage: 0, base: Type { dtype: F32, dims: [4, 6] } }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4x6xf32> ) -> (tensor<4x6xf32>) {
%v1 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 4, 3>, strides = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<4x3xf32>
%v2 = "stablehlo.negate"(%v1) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
%v3 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 3>, limit_indices = array<i64: 4, 6>, strides = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<4x3xf32>
%v4 = "stablehlo.negate"(%v3) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
%v5 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v7 = "stablehlo.dynamic_update_slice"(%v0, %v2, %v5, %v6) {} : (tensor<4x6xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
%v8 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v9 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v10 = "stablehlo.dynamic_update_slice"(%v7, %v4, %v8, %v9) {} : (tensor<4x6xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
"func.return"(%v10) : (tensor<4x6xf32>) -> ()
}
}
// output 0: Updated { storage: 0, base: Type { dtype: F32, dims: [4, 6] } }
