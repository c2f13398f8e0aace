// uniform: self = tensor<2x3xf32>, from = a number of f64, to = a number of f64
// for Cpu:
// parameter 0: RandomState
// parameter 1: Scalar { index: 0, dtype: F32 }
// parameter 2: Scalar { index: 1, dtype: F32 }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
// NumberCheck { index: 1, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> , %v11: tensor<f32> , %v12: tensor<f32> ) -> (tensor<2x3xf32>) {
%v1, %v2 = "stablehlo.rng_bit_generator"(%v0) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)
%v3 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v5 = "stablehlo.shift_right_logical"(%v2, %v4) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<2x3xui32>) -> tensor<2x3xi32>
%v7 = "stablehlo.convert"(%v6) {} : (tensor<2x3xi32>) -> tensor<2x3xf32>
%v8 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v10 = "stablehlo.multiply"(%v7, %v9) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v13 = "stablehlo.subtract"(%v12, %v11) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v15 = "stablehlo.multiply"(%v10, %v14) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v16 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v17 = "stablehlo.add"(%v15, %v16) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v18 = "stablehlo.broadcast_in_dim"(%v12) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v19 = "stablehlo.compare"(%v17, %v18) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v20 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v21 = "stablehlo.select"(%v19, %v20, %v17) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v21) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// draws 2 blocks of random bits
// for Tpu:
// parameter 0: RandomState
// parameter 1: Scalar { index: 0, dtype: F32 }
// parameter 2: Scalar { index: 1, dtype: F32 }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
// NumberCheck { index: 1, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> , %v83: tensor<f32> , %v84: tensor<f32> ) -> (tensor<2x3xf32>) {
%v1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2xui64>
%v2 = "stablehlo.constant"() {value = dense<2> : tensor<ui64>} : () -> tensor<ui64>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2xui64>
%v4 = "stablehlo.multiply"(%v1, %v3) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v5 = "stablehlo.add"(%v0, %v4) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v6 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v7 = "stablehlo.slice"(%v0) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v8 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v10 = "stablehlo.add"(%v6, %v9) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v11 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v12 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v13 = "stablehlo.shift_right_logical"(%v10, %v12) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v14 = "stablehlo.xor"(%v10, %v13) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v15 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v16 = "stablehlo.broadcast_in_dim"(%v15) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v17 = "stablehlo.multiply"(%v14, %v16) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v18 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v19 = "stablehlo.broadcast_in_dim"(%v18) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v20 = "stablehlo.shift_right_logical"(%v17, %v19) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v21 = "stablehlo.xor"(%v17, %v20) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v22 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v24 = "stablehlo.multiply"(%v21, %v23) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v25 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v26 = "stablehlo.broadcast_in_dim"(%v25) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v27 = "stablehlo.shift_right_logical"(%v24, %v26) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v28 = "stablehlo.xor"(%v24, %v27) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v29 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v30 = "stablehlo.broadcast_in_dim"(%v29) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v31 = "stablehlo.add"(%v7, %v30) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v32 = "stablehlo.xor"(%v28, %v31) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v33 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v34 = "stablehlo.broadcast_in_dim"(%v33) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v35 = "stablehlo.shift_right_logical"(%v32, %v34) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v36 = "stablehlo.xor"(%v32, %v35) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v37 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v38 = "stablehlo.broadcast_in_dim"(%v37) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v39 = "stablehlo.multiply"(%v36, %v38) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v40 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v41 = "stablehlo.broadcast_in_dim"(%v40) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v42 = "stablehlo.shift_right_logical"(%v39, %v41) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v43 = "stablehlo.xor"(%v39, %v42) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v44 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v45 = "stablehlo.broadcast_in_dim"(%v44) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v46 = "stablehlo.multiply"(%v43, %v45) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v47 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v48 = "stablehlo.broadcast_in_dim"(%v47) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v49 = "stablehlo.shift_right_logical"(%v46, %v48) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v50 = "stablehlo.xor"(%v46, %v49) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v51 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v52 = "stablehlo.broadcast_in_dim"(%v51) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v53 = "stablehlo.add"(%v50, %v52) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v54 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v55 = "stablehlo.broadcast_in_dim"(%v54) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v56 = "stablehlo.shift_right_logical"(%v53, %v55) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v57 = "stablehlo.xor"(%v53, %v56) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v58 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v59 = "stablehlo.broadcast_in_dim"(%v58) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v60 = "stablehlo.multiply"(%v57, %v59) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v61 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v62 = "stablehlo.broadcast_in_dim"(%v61) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v63 = "stablehlo.shift_right_logical"(%v60, %v62) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v64 = "stablehlo.xor"(%v60, %v63) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v65 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v66 = "stablehlo.broadcast_in_dim"(%v65) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v67 = "stablehlo.multiply"(%v64, %v66) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v68 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v69 = "stablehlo.broadcast_in_dim"(%v68) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v70 = "stablehlo.shift_right_logical"(%v67, %v69) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v71 = "stablehlo.xor"(%v67, %v70) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v72 = "stablehlo.concatenate"(%v50, %v71) {dimension = 0 : i64} : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>
%v73, %v74 = "stablehlo.rng_bit_generator"(%v72) {rng_algorithm = #stablehlo<rng_algorithm DEFAULT>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)
%v75 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v76 = "stablehlo.broadcast_in_dim"(%v75) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v77 = "stablehlo.shift_right_logical"(%v74, %v76) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v78 = "stablehlo.convert"(%v77) {} : (tensor<2x3xui32>) -> tensor<2x3xi32>
%v79 = "stablehlo.convert"(%v78) {} : (tensor<2x3xi32>) -> tensor<2x3xf32>
%v80 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v81 = "stablehlo.broadcast_in_dim"(%v80) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v82 = "stablehlo.multiply"(%v79, %v81) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v85 = "stablehlo.subtract"(%v84, %v83) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v86 = "stablehlo.broadcast_in_dim"(%v85) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v87 = "stablehlo.multiply"(%v82, %v86) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v88 = "stablehlo.broadcast_in_dim"(%v83) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v89 = "stablehlo.add"(%v87, %v88) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v90 = "stablehlo.broadcast_in_dim"(%v84) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v91 = "stablehlo.compare"(%v89, %v90) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v92 = "stablehlo.broadcast_in_dim"(%v83) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v93 = "stablehlo.select"(%v91, %v92, %v89) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v93) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// draws 2 blocks of random bits

// normal_functional: self = tensor<5xbf16>, mean = a number of f64, std = a number of f64
// for Cpu:
// parameter 0: RandomState
// parameter 1: Scalar { index: 1, dtype: F32 }
// parameter 2: Scalar { index: 0, dtype: F32 }
// NumberCheck { index: 1, dtype: F32, fit: Converts }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> , %v24: tensor<f32> , %v27: tensor<f32> ) -> (tensor<5xbf16>) {
%v1, %v2 = "stablehlo.rng_bit_generator"(%v0) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5xui32>)
%v3 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<5xui32>
%v5 = "stablehlo.shift_right_logical"(%v2, %v4) {} : (tensor<5xui32>, tensor<5xui32>) -> tensor<5xui32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<5xui32>) -> tensor<5xi32>
%v7 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v9 = "stablehlo.multiply"(%v6, %v8) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v10 = "stablehlo.constant"() {value = dense<-16777215> : tensor<i32>} : () -> tensor<i32>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v12 = "stablehlo.add"(%v9, %v11) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v13 = "stablehlo.convert"(%v12) {} : (tensor<5xi32>) -> tensor<5xf32>
%v14 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v15 = "stablehlo.broadcast_in_dim"(%v14) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v16 = "stablehlo.multiply"(%v13, %v15) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v17 = "chlo.erf_inv"(%v16) {} : (tensor<5xf32>) -> tensor<5xf32>
%v18 = "stablehlo.constant"() {value = dense<0x3FB504F3> : tensor<f32>} : () -> tensor<f32>
%v19 = "stablehlo.broadcast_in_dim"(%v18) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v20 = "stablehlo.multiply"(%v17, %v19) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v21 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v22 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v23 = "stablehlo.multiply"(%v20, %v22) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v26 = "stablehlo.multiply"(%v23, %v25) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v28 = "stablehlo.broadcast_in_dim"(%v27) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v29 = "stablehlo.add"(%v26, %v28) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v30 = "stablehlo.convert"(%v29) {} : (tensor<5xf32>) -> tensor<5xbf16>
"func.return"(%v30) : (tensor<5xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [5] }, dtype: BF16, sizes: [5], strides: [1], extents: [] }
// draws 2 blocks of random bits
// for Tpu:
// parameter 0: RandomState
// parameter 1: Scalar { index: 1, dtype: F32 }
// parameter 2: Scalar { index: 0, dtype: F32 }
// NumberCheck { index: 1, dtype: F32, fit: Converts }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> , %v96: tensor<f32> , %v99: tensor<f32> ) -> (tensor<5xbf16>) {
%v1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2xui64>
%v2 = "stablehlo.constant"() {value = dense<2> : tensor<ui64>} : () -> tensor<ui64>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2xui64>
%v4 = "stablehlo.multiply"(%v1, %v3) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v5 = "stablehlo.add"(%v0, %v4) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v6 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v7 = "stablehlo.slice"(%v0) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v8 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v10 = "stablehlo.add"(%v6, %v9) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v11 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v12 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v13 = "stablehlo.shift_right_logical"(%v10, %v12) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v14 = "stablehlo.xor"(%v10, %v13) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v15 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v16 = "stablehlo.broadcast_in_dim"(%v15) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v17 = "stablehlo.multiply"(%v14, %v16) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v18 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v19 = "stablehlo.broadcast_in_dim"(%v18) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v20 = "stablehlo.shift_right_logical"(%v17, %v19) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v21 = "stablehlo.xor"(%v17, %v20) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v22 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v24 = "stablehlo.multiply"(%v21, %v23) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v25 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v26 = "stablehlo.broadcast_in_dim"(%v25) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v27 = "stablehlo.shift_right_logical"(%v24, %v26) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v28 = "stablehlo.xor"(%v24, %v27) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v29 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v30 = "stablehlo.broadcast_in_dim"(%v29) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v31 = "stablehlo.add"(%v7, %v30) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v32 = "stablehlo.xor"(%v28, %v31) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v33 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v34 = "stablehlo.broadcast_in_dim"(%v33) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v35 = "stablehlo.shift_right_logical"(%v32, %v34) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v36 = "stablehlo.xor"(%v32, %v35) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v37 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v38 = "stablehlo.broadcast_in_dim"(%v37) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v39 = "stablehlo.multiply"(%v36, %v38) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v40 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v41 = "stablehlo.broadcast_in_dim"(%v40) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v42 = "stablehlo.shift_right_logical"(%v39, %v41) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v43 = "stablehlo.xor"(%v39, %v42) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v44 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v45 = "stablehlo.broadcast_in_dim"(%v44) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v46 = "stablehlo.multiply"(%v43, %v45) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v47 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v48 = "stablehlo.broadcast_in_dim"(%v47) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v49 = "stablehlo.shift_right_logical"(%v46, %v48) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v50 = "stablehlo.xor"(%v46, %v49) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v51 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v52 = "stablehlo.broadcast_in_dim"(%v51) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v53 = "stablehlo.add"(%v50, %v52) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v54 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v55 = "stablehlo.broadcast_in_dim"(%v54) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v56 = "stablehlo.shift_right_logical"(%v53, %v55) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v57 = "stablehlo.xor"(%v53, %v56) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v58 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v59 = "stablehlo.broadcast_in_dim"(%v58) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v60 = "stablehlo.multiply"(%v57, %v59) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v61 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v62 = "stablehlo.broadcast_in_dim"(%v61) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v63 = "stablehlo.shift_right_logical"(%v60, %v62) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v64 = "stablehlo.xor"(%v60, %v63) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v65 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v66 = "stablehlo.broadcast_in_dim"(%v65) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v67 = "stablehlo.multiply"(%v64, %v66) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v68 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v69 = "stablehlo.broadcast_in_dim"(%v68) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v70 = "stablehlo.shift_right_logical"(%v67, %v69) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v71 = "stablehlo.xor"(%v67, %v70) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v72 = "stablehlo.concatenate"(%v50, %v71) {dimension = 0 : i64} : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>
%v73, %v74 = "stablehlo.rng_bit_generator"(%v72) {rng_algorithm = #stablehlo<rng_algorithm DEFAULT>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5xui32>)
%v75 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v76 = "stablehlo.broadcast_in_dim"(%v75) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<5xui32>
%v77 = "stablehlo.shift_right_logical"(%v74, %v76) {} : (tensor<5xui32>, tensor<5xui32>) -> tensor<5xui32>
%v78 = "stablehlo.convert"(%v77) {} : (tensor<5xui32>) -> tensor<5xi32>
%v79 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
%v80 = "stablehlo.broadcast_in_dim"(%v79) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v81 = "stablehlo.multiply"(%v78, %v80) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v82 = "stablehlo.constant"() {value = dense<-16777215> : tensor<i32>} : () -> tensor<i32>
%v83 = "stablehlo.broadcast_in_dim"(%v82) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v84 = "stablehlo.add"(%v81, %v83) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v85 = "stablehlo.convert"(%v84) {} : (tensor<5xi32>) -> tensor<5xf32>
%v86 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v87 = "stablehlo.broadcast_in_dim"(%v86) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v88 = "stablehlo.multiply"(%v85, %v87) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v89 = "chlo.erf_inv"(%v88) {} : (tensor<5xf32>) -> tensor<5xf32>
%v90 = "stablehlo.constant"() {value = dense<0x3FB504F3> : tensor<f32>} : () -> tensor<f32>
%v91 = "stablehlo.broadcast_in_dim"(%v90) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v92 = "stablehlo.multiply"(%v89, %v91) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v93 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v94 = "stablehlo.broadcast_in_dim"(%v93) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v95 = "stablehlo.multiply"(%v92, %v94) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v97 = "stablehlo.broadcast_in_dim"(%v96) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v98 = "stablehlo.multiply"(%v95, %v97) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v100 = "stablehlo.broadcast_in_dim"(%v99) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v101 = "stablehlo.add"(%v98, %v100) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v102 = "stablehlo.convert"(%v101) {} : (tensor<5xf32>) -> tensor<5xbf16>
"func.return"(%v102) : (tensor<5xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [5] }, dtype: BF16, sizes: [5], strides: [1], extents: [] }
// draws 2 blocks of random bits

// native_dropout: input = tensor<2x3xf32>, p = a number of f64, train = true
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: F32 }
// parameter 2: RandomState
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<f32> , %v5: tensor<2xui64> ) -> (tensor<2x3xf32>, tensor<2x3xi1>) {
%v2 = "stablehlo.negate"(%v1) {} : (tensor<f32>) -> tensor<f32>
%v3 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.add"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v6, %v7 = "stablehlo.rng_bit_generator"(%v5) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)
%v8 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v10 = "stablehlo.shift_right_logical"(%v7, %v9) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v11 = "stablehlo.convert"(%v10) {} : (tensor<2x3xui32>) -> tensor<2x3xi32>
%v12 = "stablehlo.convert"(%v11) {} : (tensor<2x3xi32>) -> tensor<2x3xf32>
%v13 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v15 = "stablehlo.multiply"(%v12, %v14) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v16 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v18 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v19 = "stablehlo.compare"(%v4, %v18) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v20 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v21 = "stablehlo.divide"(%v20, %v4) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v22 = "stablehlo.select"(%v19, %v4, %v21) {} : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
%v23 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v24 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v25 = "stablehlo.select"(%v17, %v23, %v24) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v26 = "stablehlo.multiply"(%v0, %v25) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v27 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v28 = "stablehlo.multiply"(%v26, %v27) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v28, %v17) : (tensor<2x3xf32>, tensor<2x3xi1>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: Bool, dims: [2, 3] }, dtype: Bool, sizes: [2, 3], strides: [3, 1], extents: [] }
// draws 2 blocks of random bits
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: F32 }
// parameter 2: RandomState
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<f32> , %v5: tensor<2xui64> ) -> (tensor<2x3xf32>, tensor<2x3xi1>) {
%v2 = "stablehlo.negate"(%v1) {} : (tensor<f32>) -> tensor<f32>
%v3 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.add"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v6 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2xui64>
%v7 = "stablehlo.constant"() {value = dense<2> : tensor<ui64>} : () -> tensor<ui64>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2xui64>
%v9 = "stablehlo.multiply"(%v6, %v8) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v10 = "stablehlo.add"(%v5, %v9) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v11 = "stablehlo.slice"(%v5) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v12 = "stablehlo.slice"(%v5) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v13 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v15 = "stablehlo.add"(%v11, %v14) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v16 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v17 = "stablehlo.broadcast_in_dim"(%v16) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v18 = "stablehlo.shift_right_logical"(%v15, %v17) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v19 = "stablehlo.xor"(%v15, %v18) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v20 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v22 = "stablehlo.multiply"(%v19, %v21) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v23 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v25 = "stablehlo.shift_right_logical"(%v22, %v24) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v26 = "stablehlo.xor"(%v22, %v25) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v27 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v28 = "stablehlo.broadcast_in_dim"(%v27) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v29 = "stablehlo.multiply"(%v26, %v28) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v30 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v31 = "stablehlo.broadcast_in_dim"(%v30) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v32 = "stablehlo.shift_right_logical"(%v29, %v31) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v33 = "stablehlo.xor"(%v29, %v32) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v34 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v35 = "stablehlo.broadcast_in_dim"(%v34) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v36 = "stablehlo.add"(%v12, %v35) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v37 = "stablehlo.xor"(%v33, %v36) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v38 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v39 = "stablehlo.broadcast_in_dim"(%v38) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v40 = "stablehlo.shift_right_logical"(%v37, %v39) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v41 = "stablehlo.xor"(%v37, %v40) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v42 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v43 = "stablehlo.broadcast_in_dim"(%v42) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v44 = "stablehlo.multiply"(%v41, %v43) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v45 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v46 = "stablehlo.broadcast_in_dim"(%v45) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v47 = "stablehlo.shift_right_logical"(%v44, %v46) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v48 = "stablehlo.xor"(%v44, %v47) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v49 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v50 = "stablehlo.broadcast_in_dim"(%v49) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v51 = "stablehlo.multiply"(%v48, %v50) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v52 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v53 = "stablehlo.broadcast_in_dim"(%v52) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v54 = "stablehlo.shift_right_logical"(%v51, %v53) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v55 = "stablehlo.xor"(%v51, %v54) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v56 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v57 = "stablehlo.broadcast_in_dim"(%v56) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v58 = "stablehlo.add"(%v55, %v57) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v59 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v60 = "stablehlo.broadcast_in_dim"(%v59) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v61 = "stablehlo.shift_right_logical"(%v58, %v60) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v62 = "stablehlo.xor"(%v58, %v61) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v63 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v64 = "stablehlo.broadcast_in_dim"(%v63) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v65 = "stablehlo.multiply"(%v62, %v64) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v66 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v67 = "stablehlo.broadcast_in_dim"(%v66) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v68 = "stablehlo.shift_right_logical"(%v65, %v67) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v69 = "stablehlo.xor"(%v65, %v68) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v70 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v71 = "stablehlo.broadcast_in_dim"(%v70) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v72 = "stablehlo.multiply"(%v69, %v71) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v73 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v74 = "stablehlo.broadcast_in_dim"(%v73) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v75 = "stablehlo.shift_right_logical"(%v72, %v74) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v76 = "stablehlo.xor"(%v72, %v75) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v77 = "stablehlo.concatenate"(%v55, %v76) {dimension = 0 : i64} : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>
%v78, %v79 = "stablehlo.rng_bit_generator"(%v77) {rng_algorithm = #stablehlo<rng_algorithm DEFAULT>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)
%v80 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v81 = "stablehlo.broadcast_in_dim"(%v80) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v82 = "stablehlo.shift_right_logical"(%v79, %v81) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v83 = "stablehlo.convert"(%v82) {} : (tensor<2x3xui32>) -> tensor<2x3xi32>
%v84 = "stablehlo.convert"(%v83) {} : (tensor<2x3xi32>) -> tensor<2x3xf32>
%v85 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v86 = "stablehlo.broadcast_in_dim"(%v85) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v87 = "stablehlo.multiply"(%v84, %v86) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v88 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v89 = "stablehlo.compare"(%v87, %v88) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v90 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v91 = "stablehlo.compare"(%v4, %v90) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v92 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v93 = "stablehlo.divide"(%v92, %v4) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v94 = "stablehlo.select"(%v91, %v4, %v93) {} : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
%v95 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v96 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v97 = "stablehlo.select"(%v89, %v95, %v96) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v98 = "stablehlo.multiply"(%v0, %v97) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v99 = "stablehlo.broadcast_in_dim"(%v94) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v100 = "stablehlo.multiply"(%v98, %v99) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v100, %v89) : (tensor<2x3xf32>, tensor<2x3xi1>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: Bool, dims: [2, 3] }, dtype: Bool, sizes: [2, 3], strides: [3, 1], extents: [] }
// draws 2 blocks of random bits

// random.to: self = tensor<4xi64>, to = 10
// for Cpu:
// parameter 0: RandomState
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> ) -> (tensor<4xi64>) {
%v1, %v2 = "stablehlo.rng_bit_generator"(%v0) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
%v3 = "stablehlo.constant"() {value = dense<10> : tensor<ui32>} : () -> tensor<ui32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<4xui32>
%v5 = "stablehlo.remainder"(%v2, %v4) {} : (tensor<4xui32>, tensor<4xui32>) -> tensor<4xui32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<4xui32>) -> tensor<4xi32>
%v7 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v9 = "stablehlo.add"(%v6, %v8) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v10 = "stablehlo.convert"(%v9) {} : (tensor<4xi32>) -> tensor<4xi64>
"func.return"(%v10) : (tensor<4xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [4] }, dtype: I64, sizes: [4], strides: [1], extents: [] }
// draws 1 blocks of random bits
// for Tpu:
// parameter 0: RandomState
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> ) -> (tensor<4xi64>) {
%v1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2xui64>
%v2 = "stablehlo.constant"() {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2xui64>
%v4 = "stablehlo.multiply"(%v1, %v3) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v5 = "stablehlo.add"(%v0, %v4) {} : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xui64>
%v6 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v7 = "stablehlo.slice"(%v0) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
%v8 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v10 = "stablehlo.add"(%v6, %v9) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v11 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v12 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v13 = "stablehlo.shift_right_logical"(%v10, %v12) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v14 = "stablehlo.xor"(%v10, %v13) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v15 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v16 = "stablehlo.broadcast_in_dim"(%v15) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v17 = "stablehlo.multiply"(%v14, %v16) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v18 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v19 = "stablehlo.broadcast_in_dim"(%v18) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v20 = "stablehlo.shift_right_logical"(%v17, %v19) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v21 = "stablehlo.xor"(%v17, %v20) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v22 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v24 = "stablehlo.multiply"(%v21, %v23) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v25 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v26 = "stablehlo.broadcast_in_dim"(%v25) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v27 = "stablehlo.shift_right_logical"(%v24, %v26) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v28 = "stablehlo.xor"(%v24, %v27) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v29 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v30 = "stablehlo.broadcast_in_dim"(%v29) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v31 = "stablehlo.add"(%v7, %v30) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v32 = "stablehlo.xor"(%v28, %v31) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v33 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v34 = "stablehlo.broadcast_in_dim"(%v33) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v35 = "stablehlo.shift_right_logical"(%v32, %v34) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v36 = "stablehlo.xor"(%v32, %v35) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v37 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v38 = "stablehlo.broadcast_in_dim"(%v37) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v39 = "stablehlo.multiply"(%v36, %v38) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v40 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v41 = "stablehlo.broadcast_in_dim"(%v40) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v42 = "stablehlo.shift_right_logical"(%v39, %v41) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v43 = "stablehlo.xor"(%v39, %v42) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v44 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v45 = "stablehlo.broadcast_in_dim"(%v44) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v46 = "stablehlo.multiply"(%v43, %v45) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v47 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v48 = "stablehlo.broadcast_in_dim"(%v47) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v49 = "stablehlo.shift_right_logical"(%v46, %v48) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v50 = "stablehlo.xor"(%v46, %v49) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v51 = "stablehlo.constant"() {value = dense<11400714819323198485> : tensor<ui64>} : () -> tensor<ui64>
%v52 = "stablehlo.broadcast_in_dim"(%v51) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v53 = "stablehlo.add"(%v50, %v52) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v54 = "stablehlo.constant"() {value = dense<30> : tensor<ui64>} : () -> tensor<ui64>
%v55 = "stablehlo.broadcast_in_dim"(%v54) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v56 = "stablehlo.shift_right_logical"(%v53, %v55) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v57 = "stablehlo.xor"(%v53, %v56) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v58 = "stablehlo.constant"() {value = dense<13787848793156543929> : tensor<ui64>} : () -> tensor<ui64>
%v59 = "stablehlo.broadcast_in_dim"(%v58) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v60 = "stablehlo.multiply"(%v57, %v59) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v61 = "stablehlo.constant"() {value = dense<27> : tensor<ui64>} : () -> tensor<ui64>
%v62 = "stablehlo.broadcast_in_dim"(%v61) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v63 = "stablehlo.shift_right_logical"(%v60, %v62) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v64 = "stablehlo.xor"(%v60, %v63) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v65 = "stablehlo.constant"() {value = dense<10723151780598845931> : tensor<ui64>} : () -> tensor<ui64>
%v66 = "stablehlo.broadcast_in_dim"(%v65) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v67 = "stablehlo.multiply"(%v64, %v66) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v68 = "stablehlo.constant"() {value = dense<31> : tensor<ui64>} : () -> tensor<ui64>
%v69 = "stablehlo.broadcast_in_dim"(%v68) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<1xui64>
%v70 = "stablehlo.shift_right_logical"(%v67, %v69) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v71 = "stablehlo.xor"(%v67, %v70) {} : (tensor<1xui64>, tensor<1xui64>) -> tensor<1xui64>
%v72 = "stablehlo.concatenate"(%v50, %v71) {dimension = 0 : i64} : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>
%v73, %v74 = "stablehlo.rng_bit_generator"(%v72) {rng_algorithm = #stablehlo<rng_algorithm DEFAULT>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
%v75 = "stablehlo.constant"() {value = dense<10> : tensor<ui32>} : () -> tensor<ui32>
%v76 = "stablehlo.broadcast_in_dim"(%v75) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<4xui32>
%v77 = "stablehlo.remainder"(%v74, %v76) {} : (tensor<4xui32>, tensor<4xui32>) -> tensor<4xui32>
%v78 = "stablehlo.convert"(%v77) {} : (tensor<4xui32>) -> tensor<4xi32>
%v79 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v80 = "stablehlo.broadcast_in_dim"(%v79) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v81 = "stablehlo.add"(%v78, %v80) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v82 = "stablehlo.convert"(%v81) {} : (tensor<4xi32>) -> tensor<4xi64>
"func.return"(%v82) : (tensor<4xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [4] }, dtype: I64, sizes: [4], strides: [1], extents: [] }
// draws 1 blocks of random bits
