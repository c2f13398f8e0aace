// a sum over a bounded dimension: x0 = tensor<2x8xf32>, size 0 of at most 8 = a number of i64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xf32> , %v1: tensor<i64> ) -> (tensor<2xf32>) {
%v2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v3 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v4 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<i32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v6 = "stablehlo.compare"(%v3, %v5) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64: 1>} : (tensor<8xi1>) -> tensor<2x8xi1>
%v8 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
%v9 = "stablehlo.select"(%v7, %v0, %v8) {} : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v13 = "stablehlo.reduce"(%v9, %v2) ({
^bb0(%v10: tensor<f32>, %v11: tensor<f32>):
%v12 = "stablehlo.add"(%v10, %v11) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v12) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
"func.return"(%v13) : (tensor<2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2] }, dtype: F32, sizes: [2], strides: [1], extents: [] }

// a mean over a bounded dimension: x0 = tensor<2x8xf32>, size 0 of at most 8 = a number of i64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xf32> , %v1: tensor<i64> ) -> (tensor<2xf32>) {
%v2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v3 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v4 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<i32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v6 = "stablehlo.compare"(%v3, %v5) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64: 1>} : (tensor<8xi1>) -> tensor<2x8xi1>
%v8 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
%v9 = "stablehlo.select"(%v7, %v0, %v8) {} : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v13 = "stablehlo.reduce"(%v9, %v2) ({
^bb0(%v10: tensor<f32>, %v11: tensor<f32>):
%v12 = "stablehlo.add"(%v10, %v11) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v12) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
%v14 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v15 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<f32>
%v16 = "stablehlo.multiply"(%v14, %v15) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v17 = "stablehlo.broadcast_in_dim"(%v16) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2xf32>
%v18 = "stablehlo.divide"(%v13, %v17) {} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
"func.return"(%v18) : (tensor<2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2] }, dtype: F32, sizes: [2], strides: [1], extents: [] }

// a softmax along a bounded dimension: x0 = tensor<2x8xf32>, size 0 of at most 8 = a number of i64
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xf32> , %v1: tensor<i64> ) -> (tensor<2x8xf32>) {
%v2 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v3 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v4 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<i32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v6 = "stablehlo.compare"(%v3, %v5) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64: 1>} : (tensor<8xi1>) -> tensor<2x8xi1>
%v8 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
%v9 = "stablehlo.select"(%v7, %v0, %v8) {} : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v16 = "stablehlo.reduce"(%v9, %v2) ({
^bb0(%v10: tensor<f32>, %v11: tensor<f32>):
%v12 = "stablehlo.compare"(%v11, %v10) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v13 = "stablehlo.compare"(%v11, %v11) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v14 = "stablehlo.or"(%v12, %v13) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
%v15 = "stablehlo.select"(%v14, %v11, %v10) {} : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v15) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
%v17 = "stablehlo.reshape"(%v16) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v18 = "stablehlo.broadcast_in_dim"(%v17) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x8xf32>
%v19 = "stablehlo.subtract"(%v0, %v18) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v20 = "stablehlo.exponential"(%v19) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v21 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v22 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v23 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<i32>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v25 = "stablehlo.compare"(%v22, %v24) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v26 = "stablehlo.broadcast_in_dim"(%v25) {broadcast_dimensions = array<i64: 1>} : (tensor<8xi1>) -> tensor<2x8xi1>
%v27 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
%v28 = "stablehlo.select"(%v26, %v20, %v27) {} : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v32 = "stablehlo.reduce"(%v28, %v21) ({
^bb0(%v29: tensor<f32>, %v30: tensor<f32>):
%v31 = "stablehlo.add"(%v29, %v30) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v31) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
%v33 = "stablehlo.reshape"(%v32) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v34 = "stablehlo.broadcast_in_dim"(%v33) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x8xf32>
%v35 = "stablehlo.divide"(%v20, %v34) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
"func.return"(%v35) : (tensor<2x8xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 8] }, dtype: F32, sizes: [2, 8], strides: [8, 1], extents: [Extent([]), Extent([Factor { capacity: 8, size: Some(0) }])] }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xf32> , %v1: tensor<i64> ) -> (tensor<2x8xf32>) {
%v2 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v3 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v4 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<i32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v6 = "stablehlo.compare"(%v3, %v5) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64: 1>} : (tensor<8xi1>) -> tensor<2x8xi1>
%v8 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
%v9 = "stablehlo.select"(%v7, %v0, %v8) {} : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v13 = "stablehlo.reduce"(%v9, %v2) ({
^bb0(%v10: tensor<f32>, %v11: tensor<f32>):
%v12 = "stablehlo.maximum"(%v10, %v11) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v12) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
%v14 = "stablehlo.reshape"(%v13) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v15 = "stablehlo.broadcast_in_dim"(%v14) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x8xf32>
%v16 = "stablehlo.subtract"(%v0, %v15) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v17 = "stablehlo.exponential"(%v16) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v18 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v19 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v20 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<i32>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v22 = "stablehlo.compare"(%v19, %v21) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64: 1>} : (tensor<8xi1>) -> tensor<2x8xi1>
%v24 = "stablehlo.broadcast_in_dim"(%v18) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
%v25 = "stablehlo.select"(%v23, %v17, %v24) {} : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v29 = "stablehlo.reduce"(%v25, %v18) ({
^bb0(%v26: tensor<f32>, %v27: tensor<f32>):
%v28 = "stablehlo.add"(%v26, %v27) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v28) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
%v30 = "stablehlo.reshape"(%v29) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v31 = "stablehlo.broadcast_in_dim"(%v30) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x8xf32>
%v32 = "stablehlo.divide"(%v17, %v31) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
"func.return"(%v32) : (tensor<2x8xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 8] }, dtype: F32, sizes: [2, 8], strides: [8, 1], extents: [Extent([]), Extent([Factor { capacity: 8, size: Some(0) }])] }

// a product that contracts a bounded dimension: x0 = tensor<2x8xf32>, x1 = tensor<8x5xf32>, size 0 of at most 8 = a number of i64
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xf32> , %v1: tensor<8x5xf32> , %v2: tensor<i64> ) -> (tensor<2x5xf32>) {
%v3 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v5 = "stablehlo.convert"(%v2) {} : (tensor<i64>) -> tensor<i32>
%v6 = "stablehlo.broadcast_in_dim"(%v5) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v7 = "stablehlo.compare"(%v4, %v6) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64: 1>} : (tensor<8xi1>) -> tensor<2x8xi1>
%v9 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
%v10 = "stablehlo.select"(%v8, %v0, %v9) {} : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v11 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v12 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xi32>
%v13 = "stablehlo.convert"(%v2) {} : (tensor<i64>) -> tensor<i32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<8xi32>
%v15 = "stablehlo.compare"(%v12, %v14) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%v16 = "stablehlo.broadcast_in_dim"(%v15) {broadcast_dimensions = array<i64: 0>} : (tensor<8xi1>) -> tensor<8x5xi1>
%v17 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<8x5xf32>
%v18 = "stablehlo.select"(%v16, %v1, %v17) {} : (tensor<8x5xi1>, tensor<8x5xf32>, tensor<8x5xf32>) -> tensor<8x5xf32>
%v19 = "stablehlo.dot_general"(%v10, %v18) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x8xf32>, tensor<8x5xf32>) -> tensor<2x5xf32>
"func.return"(%v19) : (tensor<2x5xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 5] }, dtype: F32, sizes: [2, 5], strides: [5, 1], extents: [] }

// two tensors joined along a bounded dimension: x0 = tensor<2x8xf32>, x1 = tensor<2x8xf32>, size 0 of at most 8 = a number of i64
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xf32> , %v1: tensor<2x8xf32> , %v2: tensor<i64> ) -> (tensor<2x16xf32>) {
%v3 = "stablehlo.reshape"(%v0) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v4 = "stablehlo.reshape"(%v1) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v5 = "stablehlo.concatenate"(%v3, %v4) {dimension = 1 : i64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x16xf32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v7 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v8 = "stablehlo.optimization_barrier"(%v3) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v9 = "stablehlo.dynamic_update_slice"(%v5, %v8, %v7, %v6) {} : (tensor<2x16xf32>, tensor<2x8xf32>, tensor<i64>, tensor<i64>) -> tensor<2x16xf32>
%v10 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v11 = "stablehlo.multiply"(%v10, %v2) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v12 = "stablehlo.add"(%v6, %v11) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v13 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v14 = "stablehlo.optimization_barrier"(%v4) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v15 = "stablehlo.dynamic_update_slice"(%v9, %v14, %v13, %v12) {} : (tensor<2x16xf32>, tensor<2x8xf32>, tensor<i64>, tensor<i64>) -> tensor<2x16xf32>
%v16 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.multiply"(%v16, %v2) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v18 = "stablehlo.add"(%v12, %v17) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v19 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v20 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
"func.return"(%v15) : (tensor<2x16xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 16] }, dtype: F32, sizes: [2, 16], strides: [16, 1], extents: [Extent([]), Extent([Factor { capacity: 8, size: Some(0) }, Factor { capacity: 2, size: None }])] }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xf32> , %v1: tensor<2x8xf32> , %v2: tensor<i64> ) -> (tensor<2x16xf32>) {
%v3 = "stablehlo.reshape"(%v0) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v4 = "stablehlo.reshape"(%v1) {} : (tensor<2x8xf32>) -> tensor<2x8xf32>
%v5 = "stablehlo.concatenate"(%v3, %v4) {dimension = 1 : i64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x16xf32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v7 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v8 = "stablehlo.dynamic_update_slice"(%v5, %v3, %v7, %v6) {} : (tensor<2x16xf32>, tensor<2x8xf32>, tensor<i64>, tensor<i64>) -> tensor<2x16xf32>
%v9 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v10 = "stablehlo.multiply"(%v9, %v2) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v11 = "stablehlo.add"(%v6, %v10) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v12 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v13 = "stablehlo.dynamic_update_slice"(%v8, %v4, %v12, %v11) {} : (tensor<2x16xf32>, tensor<2x8xf32>, tensor<i64>, tensor<i64>) -> tensor<2x16xf32>
%v14 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.multiply"(%v14, %v2) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v16 = "stablehlo.add"(%v11, %v15) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v17 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v18 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
"func.return"(%v13) : (tensor<2x16xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 16] }, dtype: F32, sizes: [2, 16], strides: [16, 1], extents: [Extent([]), Extent([Factor { capacity: 8, size: Some(0) }, Factor { capacity: 2, size: None }])] }

// two bounded dimensions merged, and a sum over both: x0 = tensor<4x8x3xf32>, size 0 of at most 8 = a number of i64, size 1 of at most 4 = a number of i64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
// parameter 2: Scalar { index: 1, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<4x8x3xf32> , %v1: tensor<i64> , %v2: tensor<i64> ) -> (tensor<3xf32>) {
%v3 = "stablehlo.reshape"(%v0) {} : (tensor<4x8x3xf32>) -> tensor<32x3xf32>
%v4 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v5 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<32xi32>
%v6 = "stablehlo.constant"() {value = dense<8> : tensor<i32>} : () -> tensor<i32>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<32xi32>
%v8 = "stablehlo.divide"(%v5, %v7) {} : (tensor<32xi32>, tensor<32xi32>) -> tensor<32xi32>
%v9 = "stablehlo.convert"(%v2) {} : (tensor<i64>) -> tensor<i32>
%v10 = "stablehlo.broadcast_in_dim"(%v9) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<32xi32>
%v11 = "stablehlo.compare"(%v8, %v10) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<32xi32>, tensor<32xi32>) -> tensor<32xi1>
%v12 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<32xi32>
%v13 = "stablehlo.constant"() {value = dense<8> : tensor<i32>} : () -> tensor<i32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<32xi32>
%v15 = "stablehlo.remainder"(%v12, %v14) {} : (tensor<32xi32>, tensor<32xi32>) -> tensor<32xi32>
%v16 = "stablehlo.convert"(%v1) {} : (tensor<i64>) -> tensor<i32>
%v17 = "stablehlo.broadcast_in_dim"(%v16) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<32xi32>
%v18 = "stablehlo.compare"(%v15, %v17) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<32xi32>, tensor<32xi32>) -> tensor<32xi1>
%v19 = "stablehlo.and"(%v11, %v18) {} : (tensor<32xi1>, tensor<32xi1>) -> tensor<32xi1>
%v20 = "stablehlo.broadcast_in_dim"(%v19) {broadcast_dimensions = array<i64: 0>} : (tensor<32xi1>) -> tensor<32x3xi1>
%v21 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<32x3xf32>
%v22 = "stablehlo.select"(%v20, %v3, %v21) {} : (tensor<32x3xi1>, tensor<32x3xf32>, tensor<32x3xf32>) -> tensor<32x3xf32>
%v26 = "stablehlo.reduce"(%v22, %v4) ({
^bb0(%v23: tensor<f32>, %v24: tensor<f32>):
%v25 = "stablehlo.add"(%v23, %v24) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v25) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<32x3xf32>, tensor<f32>) -> (tensor<3xf32>)
"func.return"(%v26) : (tensor<3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3] }, dtype: F32, sizes: [3], strides: [1], extents: [] }

// a flip of a bounded dimension: x0 = tensor<8xf32>, size 0 of at most 8 = a number of i64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<8xf32> , %v1: tensor<i64> ) -> (tensor<8xf32>) {
%v2 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.multiply"(%v2, %v1) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v4 = "stablehlo.negate"(%v3) {} : (tensor<i64>) -> tensor<i64>
%v5 = "stablehlo.constant"() {value = dense<8> : tensor<i64>} : () -> tensor<i64>
%v6 = "stablehlo.add"(%v4, %v5) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v7 = "stablehlo.reshape"(%v0) {} : (tensor<8xf32>) -> tensor<8xf32>
%v8 = "stablehlo.reverse"(%v7) {dimensions = array<i64: 0>} : (tensor<8xf32>) -> tensor<8xf32>
%v9 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v10 = "stablehlo.pad"(%v8, %v9) {edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 8>, interior_padding = array<i64: 0>} : (tensor<8xf32>, tensor<f32>) -> tensor<16xf32>
%v11 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v12 = "stablehlo.dynamic_slice"(%v10, %v6) {slice_sizes = array<i64: 8>} : (tensor<16xf32>, tensor<i64>) -> tensor<8xf32>
"func.return"(%v12) : (tensor<8xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [8] }, dtype: F32, sizes: [8], strides: [1], extents: [Extent([Factor { capacity: 8, size: Some(0) }])] }

// a reshape that cuts through a bounded dimension: x0 = tensor<2x16xf32>, size 0 of at most 8 = a number of i64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: I64 }
module @torchtpu {
func.func public @main(%v0: tensor<2x16xf32> , %v1: tensor<i64> ) -> (tensor<4x8xf32>) {
%v2 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<32xi64>
%v3 = "stablehlo.constant"() {value = dense<1> : tensor<32xi64>} : () -> tensor<32xi64>
%v4 = "stablehlo.constant"() {value = dense<0> : tensor<32xi64>} : () -> tensor<32xi64>
%v5 = "stablehlo.constant"() {value = dense<8> : tensor<i64>} : () -> tensor<i64>
%v6 = "stablehlo.broadcast_in_dim"(%v5) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v7 = "stablehlo.remainder"(%v2, %v6) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v8 = "stablehlo.multiply"(%v7, %v3) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v9 = "stablehlo.add"(%v4, %v8) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v10 = "stablehlo.constant"() {value = dense<8> : tensor<i64>} : () -> tensor<i64>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v12 = "stablehlo.divide"(%v2, %v11) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v13 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v14 = "stablehlo.maximum"(%v1, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v15 = "stablehlo.broadcast_in_dim"(%v14) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v16 = "stablehlo.multiply"(%v3, %v15) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v17 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v18 = "stablehlo.broadcast_in_dim"(%v17) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v19 = "stablehlo.remainder"(%v12, %v18) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v20 = "stablehlo.multiply"(%v19, %v16) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v21 = "stablehlo.add"(%v9, %v20) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v22 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v24 = "stablehlo.divide"(%v12, %v23) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v25 = "stablehlo.constant"() {value = dense<4> : tensor<32xi64>} : () -> tensor<32xi64>
%v26 = "stablehlo.multiply"(%v16, %v25) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v27 = "stablehlo.constant"() {value = dense<0> : tensor<32xi64>} : () -> tensor<32xi64>
%v28 = "stablehlo.constant"() {value = dense<2> : tensor<32xi64>} : () -> tensor<32xi64>
%v29 = "stablehlo.remainder"(%v21, %v28) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v30 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v31 = "stablehlo.broadcast_in_dim"(%v30) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v32 = "stablehlo.multiply"(%v29, %v31) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v33 = "stablehlo.add"(%v27, %v32) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v34 = "stablehlo.divide"(%v21, %v28) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v35 = "stablehlo.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
%v36 = "stablehlo.maximum"(%v1, %v35) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
%v37 = "stablehlo.broadcast_in_dim"(%v36) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v38 = "stablehlo.remainder"(%v34, %v37) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v39 = "stablehlo.constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
%v40 = "stablehlo.broadcast_in_dim"(%v39) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v41 = "stablehlo.multiply"(%v38, %v40) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v42 = "stablehlo.add"(%v33, %v41) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v43 = "stablehlo.divide"(%v34, %v37) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v44 = "stablehlo.constant"() {value = dense<2> : tensor<32xi64>} : () -> tensor<32xi64>
%v45 = "stablehlo.remainder"(%v43, %v44) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v46 = "stablehlo.constant"() {value = dense<16> : tensor<i64>} : () -> tensor<i64>
%v47 = "stablehlo.broadcast_in_dim"(%v46) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v48 = "stablehlo.multiply"(%v45, %v47) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v49 = "stablehlo.add"(%v42, %v48) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v50 = "stablehlo.divide"(%v43, %v44) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v51 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v52 = "stablehlo.broadcast_in_dim"(%v51) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v53 = "stablehlo.maximum"(%v49, %v52) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v54 = "stablehlo.constant"() {value = dense<31> : tensor<i64>} : () -> tensor<i64>
%v55 = "stablehlo.broadcast_in_dim"(%v54) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<32xi64>
%v56 = "stablehlo.minimum"(%v53, %v55) {} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
%v57 = "stablehlo.reshape"(%v0) {} : (tensor<2x16xf32>) -> tensor<2x16xf32>
%v58 = "stablehlo.reshape"(%v57) {} : (tensor<2x16xf32>) -> tensor<2x16xf32>
%v59 = "stablehlo.reshape"(%v58) {} : (tensor<2x16xf32>) -> tensor<32xf32>
%v60 = "stablehlo.gather"(%v59, %v56) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>, indices_are_sorted = false} : (tensor<32xf32>, tensor<32xi64>) -> tensor<32xf32>
%v61 = "stablehlo.reshape"(%v60) {} : (tensor<32xf32>) -> tensor<4x8xf32>
"func.return"(%v61) : (tensor<4x8xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4, 8] }, dtype: F32, sizes: [4, 8], strides: [8, 1], extents: [Extent([]), Extent([Factor { capacity: 8, size: Some(0) }])] }

// a row that does not take bounded dimensions: x0 = tensor<2x8xf32>, size 0 of at most 8 = a number of i64
// NotImplemented: linalg_cholesky_ex with bounded dimensions: a factorization of a matrix whose rows and columns change differently
