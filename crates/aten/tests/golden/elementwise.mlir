// add.Tensor: self = tensor<2x3xf32>, other = tensor<3xi32>, alpha = Int(1)
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<3xi32> ) -> (tensor<2x3xf32>) {
%v2 = "stablehlo.convert"(%v1) {} : (tensor<3xi32>) -> tensor<3xf32>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3xf32>
%v4 = "stablehlo.add"(%v0, %v3) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v4) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }

// add.Tensor: self = tensor<4xbf16>, other = tensor<f32>, alpha = a number of f64
// parameter 0: Scalar { index: 0, dtype: F32 }
// parameter 1: Storage(0)
// parameter 2: Storage(1)
// NumberCheck { index: 0, dtype: BF16, fit: Converts }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<f32> , %v1: tensor<4xbf16> , %v3: tensor<f32> ) -> (tensor<4xbf16>) {
%v2 = "stablehlo.convert"(%v1) {} : (tensor<4xbf16>) -> tensor<4xf32>
%v4 = "stablehlo.multiply"(%v3, %v0) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v6 = "stablehlo.add"(%v2, %v5) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v7 = "stablehlo.convert"(%v6) {} : (tensor<4xf32>) -> tensor<4xbf16>
"func.return"(%v7) : (tensor<4xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [4] }, dtype: BF16, sizes: [4], strides: [1], extents: [] }

// div.Tensor: self = tensor<4xi64>, other = tensor<4xi64>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<4xi64> , %v2: tensor<4xi64> ) -> (tensor<4xf32>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<4xi64>) -> tensor<4xf32>
%v3 = "stablehlo.convert"(%v2) {} : (tensor<4xi64>) -> tensor<4xf32>
%v4 = "stablehlo.divide"(%v1, %v3) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
"func.return"(%v4) : (tensor<4xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4] }, dtype: F32, sizes: [4], strides: [1], extents: [] }

// div.Tensor_mode: self = tensor<4xi32>, other = tensor<4xi32>, rounding_mode = "floor"
// parameter 0: Storage(1)
// parameter 1: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4xi32> , %v15: tensor<4xi32> ) -> (tensor<4xi32>, tensor<i64>) {
%v1 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v3 = "stablehlo.compare"(%v0, %v2) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
%v4 = "stablehlo.convert"(%v3) {} : (tensor<4xi1>) -> tensor<4xi32>
%v5 = "stablehlo.constant"() {value = dense<-2147483648> : tensor<i32>} : () -> tensor<i32>
%v9 = "stablehlo.reduce"(%v4, %v5) ({
^bb0(%v6: tensor<i32>, %v7: tensor<i32>):
%v8 = "stablehlo.maximum"(%v6, %v7) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v8) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<4xi32>, tensor<i32>) -> (tensor<i32>)
%v10 = "stablehlo.convert"(%v9) {} : (tensor<i32>) -> tensor<i64>
%v11 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v12 = "stablehlo.compare"(%v10, %v11) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v13 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v14 = "stablehlo.select"(%v12, %v13, %v10) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v16 = "stablehlo.remainder"(%v15, %v0) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v17 = "stablehlo.divide"(%v15, %v0) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v18 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v19 = "stablehlo.broadcast_in_dim"(%v18) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v20 = "stablehlo.compare"(%v16, %v19) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
%v21 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v22 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v23 = "stablehlo.compare"(%v16, %v22) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
%v24 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v26 = "stablehlo.compare"(%v0, %v25) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
%v27 = "stablehlo.compare"(%v23, %v26) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
%v28 = "stablehlo.and"(%v20, %v27) {} : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
%v29 = "stablehlo.convert"(%v28) {} : (tensor<4xi1>) -> tensor<4xi32>
%v30 = "stablehlo.subtract"(%v17, %v29) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
"func.return"(%v30, %v14) : (tensor<4xi32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I32, dims: [4] }, dtype: I32, sizes: [4], strides: [1], extents: [] }
// output 1: Check(Check { error: Error { kind: Runtime, message: "ZeroDivisionError", is_located: false } })

// pow.Tensor_Scalar: self = tensor<4xf32>, exponent = Int(3)
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4xf32> ) -> (tensor<4xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0x40400000> : tensor<f32>} : () -> tensor<f32>
%v2 = "stablehlo.multiply"(%v0, %v0) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v3 = "stablehlo.multiply"(%v2, %v0) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
"func.return"(%v3) : (tensor<4xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4] }, dtype: F32, sizes: [4], strides: [1], extents: [] }

// clamp: self = tensor<4xui8>, min = a number of i64, max = a number of i64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
// parameter 2: Scalar { index: 1, dtype: I64 }
// NumberCheck { index: 0, dtype: I64, fit: Converts }
// NumberCheck { index: 0, dtype: U8, fit: LowerBound }
// NumberCheck { index: 1, dtype: I64, fit: Converts }
// NumberCheck { index: 1, dtype: U8, fit: UpperBound }
module @torchtpu {
func.func public @main(%v0: tensor<4xui8> , %v1: tensor<i64> , %v9: tensor<i64> ) -> (tensor<4xui8>) {
%v2 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.maximum"(%v1, %v2) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v4 = "stablehlo.constant"() {value = dense<255> : tensor<i64>} : () -> tensor<i64>
%v5 = "stablehlo.minimum"(%v3, %v4) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<i64>) -> tensor<ui8>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64>} : (tensor<ui8>) -> tensor<4xui8>
%v8 = "stablehlo.maximum"(%v0, %v7) {} : (tensor<4xui8>, tensor<4xui8>) -> tensor<4xui8>
%v10 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v11 = "stablehlo.maximum"(%v9, %v10) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v12 = "stablehlo.constant"() {value = dense<255> : tensor<i64>} : () -> tensor<i64>
%v13 = "stablehlo.minimum"(%v11, %v12) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v14 = "stablehlo.convert"(%v13) {} : (tensor<i64>) -> tensor<ui8>
%v15 = "stablehlo.broadcast_in_dim"(%v14) {broadcast_dimensions = array<i64>} : (tensor<ui8>) -> tensor<4xui8>
%v16 = "stablehlo.minimum"(%v8, %v15) {} : (tensor<4xui8>, tensor<4xui8>) -> tensor<4xui8>
"func.return"(%v16) : (tensor<4xui8>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: U8, dims: [4] }, dtype: U8, sizes: [4], strides: [1], extents: [] }

// eq.Scalar: self = tensor<4xf16>, other = a number of f64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: F16 }
module @torchtpu {
func.func public @main(%v0: tensor<4xf16> , %v1: tensor<f16> ) -> (tensor<4xi1>) {
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f16>) -> tensor<4xf16>
%v3 = "stablehlo.compare"(%v0, %v2) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xi1>
"func.return"(%v3) : (tensor<4xi1>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: Bool, dims: [4] }, dtype: Bool, sizes: [4], strides: [1], extents: [] }

// where.self: condition = tensor<2x1xi1>, self = tensor<2x3xf32>, other = tensor<f32>
// parameter 0: Storage(1)
// parameter 1: Storage(2)
// parameter 2: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<f32> , %v2: tensor<2x1xi1> ) -> (tensor<2x3xf32>) {
%v3 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v4 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xi1>) -> tensor<2x3xi1>
%v5 = "stablehlo.select"(%v4, %v0, %v3) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v5) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }

// gelu: self = tensor<2x3xbf16>, approximate = "tanh"
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xbf16> ) -> (tensor<2x3xbf16>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<2x3xbf16>) -> tensor<2x3xf32>
%v2 = "stablehlo.constant"() {value = dense<0x3F000000> : tensor<f32>} : () -> tensor<f32>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v4 = "stablehlo.multiply"(%v1, %v3) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v5 = "stablehlo.multiply"(%v1, %v1) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v6 = "stablehlo.multiply"(%v5, %v1) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v7 = "stablehlo.constant"() {value = dense<0x3D372713> : tensor<f32>} : () -> tensor<f32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v9 = "stablehlo.multiply"(%v6, %v8) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v10 = "stablehlo.add"(%v1, %v9) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v11 = "stablehlo.constant"() {value = dense<0x3F4C422A> : tensor<f32>} : () -> tensor<f32>
%v12 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v13 = "stablehlo.multiply"(%v10, %v12) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v14 = "stablehlo.tanh"(%v13) {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
%v15 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v16 = "stablehlo.broadcast_in_dim"(%v15) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v17 = "stablehlo.add"(%v14, %v16) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v18 = "stablehlo.multiply"(%v4, %v17) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v19 = "stablehlo.convert"(%v18) {} : (tensor<2x3xf32>) -> tensor<2x3xbf16>
"func.return"(%v19) : (tensor<2x3xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [2, 3] }, dtype: BF16, sizes: [2, 3], strides: [3, 1], extents: [] }

// gelu: self = tensor<2x3xi32>, approximate = "none"
// NotImplemented: "gelu" not implemented for 'Int'

// sigmoid: self = tensor<3xcomplex<f32>>
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<3xcomplex<f32>> ) -> (tensor<3xcomplex<f32>>) {
%v1 = "stablehlo.real"(%v0) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v4 = "stablehlo.compare"(%v1, %v3) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
%v5 = "stablehlo.negate"(%v0) {} : (tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
%v6 = "stablehlo.select"(%v4, %v0, %v5) {} : (tensor<3xi1>, tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
%v7 = "stablehlo.real"(%v6) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v8 = "stablehlo.exponential"(%v6) {} : (tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
%v9 = "stablehlo.constant"() {value = dense<0x7F800000> : tensor<f32>} : () -> tensor<f32>
%v10 = "stablehlo.broadcast_in_dim"(%v9) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v11 = "stablehlo.compare"(%v7, %v10) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
%v12 = "stablehlo.real"(%v8) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v13 = "stablehlo.compare"(%v12, %v12) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
%v14 = "stablehlo.and"(%v11, %v13) {} : (tensor<3xi1>, tensor<3xi1>) -> tensor<3xi1>
%v15 = "stablehlo.real"(%v8) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v16 = "stablehlo.select"(%v14, %v7, %v15) {} : (tensor<3xi1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v17 = "stablehlo.imag"(%v8) {} : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
%v18 = "stablehlo.complex"(%v16, %v17) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xcomplex<f32>>
%v19 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v20 = "stablehlo.broadcast_in_dim"(%v19) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v21 = "stablehlo.compare"(%v7, %v20) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
%v22 = "stablehlo.constant"() {value = dense<(0x00000000, 0x00000000)> : tensor<3xcomplex<f32>>} : () -> tensor<3xcomplex<f32>>
%v23 = "stablehlo.select"(%v21, %v22, %v18) {} : (tensor<3xi1>, tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
%v24 = "stablehlo.constant"() {value = dense<(0x3F800000, 0x00000000)> : tensor<complex<f32>>} : () -> tensor<complex<f32>>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<complex<f32>>) -> tensor<3xcomplex<f32>>
%v26 = "stablehlo.select"(%v4, %v23, %v25) {} : (tensor<3xi1>, tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
%v27 = "stablehlo.constant"() {value = dense<(0x3F800000, 0x00000000)> : tensor<complex<f32>>} : () -> tensor<complex<f32>>
%v28 = "stablehlo.broadcast_in_dim"(%v27) {broadcast_dimensions = array<i64>} : (tensor<complex<f32>>) -> tensor<3xcomplex<f32>>
%v29 = "stablehlo.add"(%v23, %v28) {} : (tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
%v30 = "stablehlo.divide"(%v26, %v29) {} : (tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
"func.return"(%v30) : (tensor<3xcomplex<f32>>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: C64, dims: [3] }, dtype: C64, sizes: [3], strides: [1], extents: [] }

// bitwise_and.Tensor: self = tensor<4xi64>, other = tensor<4xi1>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<4xi64> , %v1: tensor<4xi1> ) -> (tensor<4xi64>) {
%v2 = "stablehlo.convert"(%v1) {} : (tensor<4xi1>) -> tensor<4xi64>
%v3 = "stablehlo.and"(%v0, %v2) {} : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
"func.return"(%v3) : (tensor<4xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [4] }, dtype: I64, sizes: [4], strides: [1], extents: [] }

// special_laguerre_polynomial_l: x = tensor<4xf64>, n = Int(2)
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4xf64> ) -> (tensor<4xf64>) {
%v1 = "stablehlo.constant"() {value = dense<0x4000000000000000> : tensor<f64>} : () -> tensor<f64>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v3 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v5 = "stablehlo.compare"(%v2, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v6 = "stablehlo.ceil"(%v2) {} : (tensor<4xf64>) -> tensor<4xf64>
%v7 = "stablehlo.floor"(%v2) {} : (tensor<4xf64>) -> tensor<4xf64>
%v8 = "stablehlo.select"(%v5, %v6, %v7) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v9 = "stablehlo.is_finite"(%v8) {} : (tensor<4xf64>) -> tensor<4xi1>
%v10 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v12 = "stablehlo.select"(%v9, %v8, %v11) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v13 = "stablehlo.constant"() {value = dense<0xFFF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v20 = "stablehlo.reduce"(%v12, %v13) ({
^bb0(%v14: tensor<f64>, %v15: tensor<f64>):
%v16 = "stablehlo.compare"(%v15, %v14) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f64>, tensor<f64>) -> tensor<i1>
%v17 = "stablehlo.compare"(%v15, %v15) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f64>, tensor<f64>) -> tensor<i1>
%v18 = "stablehlo.or"(%v16, %v17) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
%v19 = "stablehlo.select"(%v18, %v15, %v14) {} : (tensor<i1>, tensor<f64>, tensor<f64>) -> tensor<f64>
"stablehlo.return"(%v19) : (tensor<f64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<4xf64>, tensor<f64>) -> (tensor<f64>)
%v21 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v22 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<4xf64>} : () -> tensor<4xf64>
%v23 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<4xf64>} : () -> tensor<4xf64>
%v24 = "stablehlo.negate"(%v0) {} : (tensor<4xf64>) -> tensor<4xf64>
%v25 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v26 = "stablehlo.broadcast_in_dim"(%v25) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v27 = "stablehlo.add"(%v24, %v26) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v61, %v62, %v63, %v64, %v65, %v66 = "stablehlo.while"(%v21, %v23, %v27, %v0, %v8, %v20) ({
^bb0(%v28: tensor<f64>, %v29: tensor<4xf64>, %v30: tensor<4xf64>, %v31: tensor<4xf64>, %v32: tensor<4xf64>, %v33: tensor<f64>):
%v34 = "stablehlo.compare"(%v28, %v33) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f64>, tensor<f64>) -> tensor<i1>
"stablehlo.return"(%v34) : (tensor<i1>) -> ()
}, {
^bb0(%v35: tensor<f64>, %v36: tensor<4xf64>, %v37: tensor<4xf64>, %v38: tensor<4xf64>, %v39: tensor<4xf64>, %v40: tensor<f64>):
%v41 = "stablehlo.broadcast_in_dim"(%v35) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v42 = "stablehlo.compare"(%v39, %v41) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v43 = "stablehlo.constant"() {value = dense<0x4000000000000000> : tensor<f64>} : () -> tensor<f64>
%v44 = "stablehlo.multiply"(%v35, %v43) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v45 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v46 = "stablehlo.add"(%v44, %v45) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v47 = "stablehlo.broadcast_in_dim"(%v46) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v48 = "stablehlo.subtract"(%v47, %v38) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v49 = "stablehlo.multiply"(%v48, %v37) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v50 = "stablehlo.broadcast_in_dim"(%v35) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v51 = "stablehlo.multiply"(%v50, %v36) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v52 = "stablehlo.subtract"(%v49, %v51) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v53 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v54 = "stablehlo.add"(%v35, %v53) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v55 = "stablehlo.broadcast_in_dim"(%v54) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v56 = "stablehlo.divide"(%v52, %v55) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v57 = "stablehlo.select"(%v42, %v56, %v37) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v58 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v59 = "stablehlo.add"(%v35, %v58) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v60 = "stablehlo.select"(%v42, %v37, %v36) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
"stablehlo.return"(%v59, %v60, %v57, %v38, %v39, %v40) : (tensor<f64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<f64>) -> ()
}) {} : (tensor<f64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<f64>) -> (tensor<f64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<f64>)
%v67 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v68 = "stablehlo.broadcast_in_dim"(%v67) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v69 = "stablehlo.compare"(%v8, %v68) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v70 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v71 = "stablehlo.broadcast_in_dim"(%v70) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v72 = "stablehlo.compare"(%v8, %v71) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v73 = "stablehlo.select"(%v72, %v23, %v63) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v74 = "stablehlo.select"(%v69, %v22, %v73) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
"func.return"(%v74) : (tensor<4xf64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F64, dims: [4] }, dtype: F64, sizes: [4], strides: [1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<4xf64> ) -> (tensor<4xf64>) {
%v1 = "stablehlo.constant"() {value = dense<0x4000000000000000> : tensor<f64>} : () -> tensor<f64>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v3 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v5 = "stablehlo.compare"(%v2, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v6 = "stablehlo.ceil"(%v2) {} : (tensor<4xf64>) -> tensor<4xf64>
%v7 = "stablehlo.floor"(%v2) {} : (tensor<4xf64>) -> tensor<4xf64>
%v8 = "stablehlo.select"(%v5, %v6, %v7) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v9 = "stablehlo.is_finite"(%v8) {} : (tensor<4xf64>) -> tensor<4xi1>
%v10 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v12 = "stablehlo.select"(%v9, %v8, %v11) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v13 = "stablehlo.constant"() {value = dense<0xFFF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v17 = "stablehlo.reduce"(%v12, %v13) ({
^bb0(%v14: tensor<f64>, %v15: tensor<f64>):
%v16 = "stablehlo.maximum"(%v14, %v15) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
"stablehlo.return"(%v16) : (tensor<f64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<4xf64>, tensor<f64>) -> (tensor<f64>)
%v18 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v19 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<4xf64>} : () -> tensor<4xf64>
%v20 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<4xf64>} : () -> tensor<4xf64>
%v21 = "stablehlo.negate"(%v0) {} : (tensor<4xf64>) -> tensor<4xf64>
%v22 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v24 = "stablehlo.add"(%v21, %v23) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v58, %v59, %v60, %v61, %v62, %v63 = "stablehlo.while"(%v18, %v20, %v24, %v0, %v8, %v17) ({
^bb0(%v25: tensor<f64>, %v26: tensor<4xf64>, %v27: tensor<4xf64>, %v28: tensor<4xf64>, %v29: tensor<4xf64>, %v30: tensor<f64>):
%v31 = "stablehlo.compare"(%v25, %v30) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f64>, tensor<f64>) -> tensor<i1>
"stablehlo.return"(%v31) : (tensor<i1>) -> ()
}, {
^bb0(%v32: tensor<f64>, %v33: tensor<4xf64>, %v34: tensor<4xf64>, %v35: tensor<4xf64>, %v36: tensor<4xf64>, %v37: tensor<f64>):
%v38 = "stablehlo.broadcast_in_dim"(%v32) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v39 = "stablehlo.compare"(%v36, %v38) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v40 = "stablehlo.constant"() {value = dense<0x4000000000000000> : tensor<f64>} : () -> tensor<f64>
%v41 = "stablehlo.multiply"(%v32, %v40) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v42 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v43 = "stablehlo.add"(%v41, %v42) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v44 = "stablehlo.broadcast_in_dim"(%v43) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v45 = "stablehlo.subtract"(%v44, %v35) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v46 = "stablehlo.multiply"(%v45, %v34) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v47 = "stablehlo.broadcast_in_dim"(%v32) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v48 = "stablehlo.multiply"(%v47, %v33) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v49 = "stablehlo.subtract"(%v46, %v48) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v50 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v51 = "stablehlo.add"(%v32, %v50) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v52 = "stablehlo.broadcast_in_dim"(%v51) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v53 = "stablehlo.divide"(%v49, %v52) {} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v54 = "stablehlo.select"(%v39, %v53, %v34) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v55 = "stablehlo.constant"() {value = dense<0x3FF0000000000000> : tensor<f64>} : () -> tensor<f64>
%v56 = "stablehlo.add"(%v32, %v55) {} : (tensor<f64>, tensor<f64>) -> tensor<f64>
%v57 = "stablehlo.select"(%v39, %v34, %v33) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
"stablehlo.return"(%v56, %v57, %v54, %v35, %v36, %v37) : (tensor<f64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<f64>) -> ()
}) {} : (tensor<f64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<f64>) -> (tensor<f64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<f64>)
%v64 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v65 = "stablehlo.broadcast_in_dim"(%v64) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v66 = "stablehlo.compare"(%v8, %v65) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v67 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v68 = "stablehlo.broadcast_in_dim"(%v67) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> tensor<4xf64>
%v69 = "stablehlo.compare"(%v8, %v68) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
%v70 = "stablehlo.select"(%v69, %v20, %v60) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
%v71 = "stablehlo.select"(%v66, %v19, %v70) {} : (tensor<4xi1>, tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
"func.return"(%v71) : (tensor<4xf64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F64, dims: [4] }, dtype: F64, sizes: [4], strides: [1], extents: [] }

// fake_quantize_per_tensor_affine_cachemask: self = tensor<4xf32>, scale = a number of f64, zero_point = 0, quant_min = -128, quant_max = 127
// parameter 0: Scalar { index: 0, dtype: F32 }
// parameter 1: Storage(0)
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<f32> , %v2: tensor<4xf32> ) -> (tensor<4xf32>, tensor<4xi1>) {
%v1 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.divide"(%v3, %v0) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v6 = "stablehlo.multiply"(%v2, %v5) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v7 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<f32>
%v8 = "stablehlo.round_nearest_even"(%v6) {} : (tensor<4xf32>) -> tensor<4xf32>
%v9 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v10 = "stablehlo.add"(%v8, %v9) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v11 = "stablehlo.compare"(%v10, %v10) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
%v12 = "stablehlo.constant"() {value = dense<0xC3000000> : tensor<4xf32>} : () -> tensor<4xf32>
%v13 = "stablehlo.constant"() {value = dense<0xC3000000> : tensor<f32>} : () -> tensor<f32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v15 = "stablehlo.maximum"(%v10, %v14) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v16 = "stablehlo.constant"() {value = dense<0x42FE0000> : tensor<f32>} : () -> tensor<f32>
%v17 = "stablehlo.broadcast_in_dim"(%v16) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v18 = "stablehlo.minimum"(%v15, %v17) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v19 = "stablehlo.select"(%v11, %v12, %v18) {} : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v20 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<f32>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v22 = "stablehlo.subtract"(%v19, %v21) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v23 = "stablehlo.broadcast_in_dim"(%v0) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v24 = "stablehlo.multiply"(%v22, %v23) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
%v25 = "stablehlo.constant"() {value = dense<0xC3000000> : tensor<f32>} : () -> tensor<f32>
%v26 = "stablehlo.broadcast_in_dim"(%v25) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v27 = "stablehlo.compare"(%v10, %v26) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
%v28 = "stablehlo.constant"() {value = dense<0x42FE0000> : tensor<f32>} : () -> tensor<f32>
%v29 = "stablehlo.broadcast_in_dim"(%v28) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%v30 = "stablehlo.compare"(%v10, %v29) {comparison_direction = #stablehlo<comparison_direction LE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
%v31 = "stablehlo.and"(%v27, %v30) {} : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
"func.return"(%v24, %v31) : (tensor<4xf32>, tensor<4xi1>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4] }, dtype: F32, sizes: [4], strides: [1], extents: [] }
// output 1: Fresh { base: Type { dtype: Bool, dims: [4] }, dtype: Bool, sizes: [4], strides: [1], extents: [] }
