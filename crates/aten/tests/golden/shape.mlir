// cat: tensors = tensor<2x3xf32> and tensor<1x3xi32>, dim = 0
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<1x3xi32> ) -> (tensor<3x3xf32>) {
%v2 = "stablehlo.convert"(%v1) {} : (tensor<1x3xi32>) -> tensor<1x3xf32>
%v3 = "stablehlo.concatenate"(%v0, %v2) {dimension = 0 : i64} : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<3x3xf32>
"func.return"(%v3) : (tensor<3x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3, 3] }, dtype: F32, sizes: [3, 3], strides: [3, 1], extents: [] }

// _to_copy: self = tensor<2x3xf32>, dtype = bf16
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2x3xbf16>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<2x3xf32>) -> tensor<2x3xbf16>
"func.return"(%v1) : (tensor<2x3xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [2, 3] }, dtype: BF16, sizes: [2, 3], strides: [3, 1], extents: [] }

// arange.start_step: start = Int(0), end = Int(10), step = Int(2)
module @torchtpu {
func.func public @main() -> (tensor<5xi64>) {
%v0 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<5xi32>
%v1 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v3 = "stablehlo.multiply"(%v0, %v2) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v4 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v6 = "stablehlo.add"(%v3, %v5) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v7 = "stablehlo.convert"(%v6) {} : (tensor<5xi32>) -> tensor<5xi64>
"func.return"(%v7) : (tensor<5xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [5] }, dtype: I64, sizes: [5], strides: [1], extents: [] }

// full: size = [2, 3], fill_value = a number of f64
// parameter 0: Scalar { index: 0, dtype: F32 }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<f32> ) -> (tensor<2x3xf32>) {
%v1 = "stablehlo.broadcast_in_dim"(%v0) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
"func.return"(%v1) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }

// tril: self = tensor<3x3xf32>, diagonal = 0
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<3x3xf32> ) -> (tensor<3x3xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v2 = "stablehlo.constant"() {value = dense<-3> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.maximum"(%v1, %v2) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v4 = "stablehlo.constant"() {value = dense<3> : tensor<i64>} : () -> tensor<i64>
%v5 = "stablehlo.minimum"(%v3, %v4) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<i64>) -> tensor<i32>
%v7 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<3x3xi32>
%v8 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<3x3xi32>
%v9 = "stablehlo.add"(%v7, %v8) {} : (tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi32>
%v10 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<3x3xi32>
%v11 = "stablehlo.compare"(%v10, %v9) {comparison_direction = #stablehlo<comparison_direction LE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi1>
%v12 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v13 = "stablehlo.broadcast_in_dim"(%v12) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3x3xf32>
%v14 = "stablehlo.select"(%v11, %v0, %v13) {} : (tensor<3x3xi1>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
"func.return"(%v14) : (tensor<3x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3, 3] }, dtype: F32, sizes: [3, 3], strides: [3, 1], extents: [] }

// flip: self = tensor<2x3xi64>, dims = [1]
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xi64> ) -> (tensor<2x3xi64>) {
%v1 = "stablehlo.reverse"(%v0) {dimensions = array<i64: 1>} : (tensor<2x3xi64>) -> tensor<2x3xi64>
"func.return"(%v1) : (tensor<2x3xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2, 3] }, dtype: I64, sizes: [2, 3], strides: [3, 1], extents: [] }

// clone: self = tensor<2x3xf32>
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<3x2xf32>) {
%v1 = "stablehlo.transpose"(%v0) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
"func.return"(%v1) : (tensor<3x2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3, 2] }, dtype: F32, sizes: [2, 3], strides: [1, 2], extents: [] }
