// index.Tensor: self = tensor<4x5xf32>, indices = tensor<3xi64> and tensor<2x1xi64>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
module @torchtpu {
func.func public @main(%v0: tensor<4x5xf32> , %v1: tensor<3xi64> , %v2: tensor<2x1xi64> ) -> (tensor<2x3xf32>, tensor<i64>, tensor<i64>) {
%v3 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v4 = "stablehlo.negate"(%v3) {} : (tensor<i64>) -> tensor<i64>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v6 = "stablehlo.compare"(%v1, %v5) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v7 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v8 = "stablehlo.compare"(%v1, %v7) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v9 = "stablehlo.or"(%v6, %v8) {} : (tensor<3xi1>, tensor<3xi1>) -> tensor<3xi1>
%v10 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<3xi64>} : () -> tensor<3xi64>
%v11 = "stablehlo.select"(%v9, %v1, %v10) {} : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v12 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v16 = "stablehlo.reduce"(%v11, %v12) ({
^bb0(%v13: tensor<i64>, %v14: tensor<i64>):
%v15 = "stablehlo.maximum"(%v13, %v14) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v15) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<3xi64>, tensor<i64>) -> (tensor<i64>)
%v17 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v18 = "stablehlo.compare"(%v16, %v17) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v19 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v20 = "stablehlo.select"(%v18, %v19, %v16) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v21 = "stablehlo.constant"() {value = dense<5> : tensor<i64>} : () -> tensor<i64>
%v22 = "stablehlo.negate"(%v21) {} : (tensor<i64>) -> tensor<i64>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v24 = "stablehlo.compare"(%v2, %v23) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi1>
%v25 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v26 = "stablehlo.compare"(%v2, %v25) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi1>
%v27 = "stablehlo.or"(%v24, %v26) {} : (tensor<2x1xi1>, tensor<2x1xi1>) -> tensor<2x1xi1>
%v28 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<2x1xi64>} : () -> tensor<2x1xi64>
%v29 = "stablehlo.select"(%v27, %v2, %v28) {} : (tensor<2x1xi1>, tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi64>
%v30 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v34 = "stablehlo.reduce"(%v29, %v30) ({
^bb0(%v31: tensor<i64>, %v32: tensor<i64>):
%v33 = "stablehlo.maximum"(%v31, %v32) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v33) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x1xi64>, tensor<i64>) -> (tensor<i64>)
%v35 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v36 = "stablehlo.compare"(%v34, %v35) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v37 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v38 = "stablehlo.select"(%v36, %v37, %v34) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v39 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v40 = "stablehlo.broadcast_in_dim"(%v39) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v41 = "stablehlo.compare"(%v1, %v40) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v42 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v43 = "stablehlo.broadcast_in_dim"(%v42) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v44 = "stablehlo.add"(%v1, %v43) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v45 = "stablehlo.select"(%v41, %v44, %v1) {} : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v46 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v47 = "stablehlo.broadcast_in_dim"(%v46) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v48 = "stablehlo.maximum"(%v45, %v47) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v49 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v50 = "stablehlo.broadcast_in_dim"(%v49) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v51 = "stablehlo.minimum"(%v48, %v50) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v52 = "stablehlo.convert"(%v51) {} : (tensor<3xi64>) -> tensor<3xi32>
%v53 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v54 = "stablehlo.broadcast_in_dim"(%v53) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v55 = "stablehlo.compare"(%v2, %v54) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi1>
%v56 = "stablehlo.constant"() {value = dense<5> : tensor<i64>} : () -> tensor<i64>
%v57 = "stablehlo.broadcast_in_dim"(%v56) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v58 = "stablehlo.add"(%v2, %v57) {} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi64>
%v59 = "stablehlo.select"(%v55, %v58, %v2) {} : (tensor<2x1xi1>, tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi64>
%v60 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v61 = "stablehlo.broadcast_in_dim"(%v60) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v62 = "stablehlo.maximum"(%v59, %v61) {} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi64>
%v63 = "stablehlo.constant"() {value = dense<5> : tensor<i64>} : () -> tensor<i64>
%v64 = "stablehlo.broadcast_in_dim"(%v63) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v65 = "stablehlo.minimum"(%v62, %v64) {} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi64>
%v66 = "stablehlo.convert"(%v65) {} : (tensor<2x1xi64>) -> tensor<2x1xi32>
%v67 = "stablehlo.broadcast_in_dim"(%v52) {broadcast_dimensions = array<i64: 1>} : (tensor<3xi32>) -> tensor<2x3xi32>
%v68 = "stablehlo.broadcast_in_dim"(%v66) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xi32>) -> tensor<2x3xi32>
%v69 = "stablehlo.reshape"(%v67) {} : (tensor<2x3xi32>) -> tensor<2x3x1xi32>
%v70 = "stablehlo.reshape"(%v68) {} : (tensor<2x3xi32>) -> tensor<2x3x1xi32>
%v71 = "stablehlo.concatenate"(%v69, %v70) {dimension = 2 : i64} : (tensor<2x3x1xi32>, tensor<2x3x1xi32>) -> tensor<2x3x2xi32>
%v72 = "stablehlo.gather"(%v0, %v71) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [0, 1], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false} : (tensor<4x5xf32>, tensor<2x3x2xi32>) -> tensor<2x3xf32>
"func.return"(%v72, %v20, %v38) : (tensor<2x3xf32>, tensor<i64>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// output 1: Check(Check { error: Error { kind: Index, message: "index {number} is out of bounds for dimension 0 with size 4", is_located: false } })
// output 2: Check(Check { error: Error { kind: Index, message: "index {number} is out of bounds for dimension 1 with size 5", is_located: false } })

// index.Tensor: self = tensor<4xf32>, indices = tensor<4xi1>
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<4xf32> , %v1: tensor<4xi1> ) -> (tensor<4xf32>, tensor<i64>) {
%v2 = "stablehlo.convert"(%v1) {} : (tensor<4xi1>) -> tensor<4xi32>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v7 = "stablehlo.reduce"(%v2, %v3) ({
^bb0(%v4: tensor<i32>, %v5: tensor<i32>):
%v6 = "stablehlo.add"(%v4, %v5) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v6) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<4xi32>, tensor<i32>) -> (tensor<i32>)
%v8 = "stablehlo.convert"(%v7) {} : (tensor<i32>) -> tensor<i64>
%v9 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<4xi32>
%v10 = "stablehlo.constant"() {value = dense<4> : tensor<i32>} : () -> tensor<i32>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v12 = "stablehlo.add"(%v9, %v11) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v13 = "stablehlo.convert"(%v1) {} : (tensor<4xi1>) -> tensor<4xi32>
%v14 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v15 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v19 = "stablehlo.reduce_window"(%v13, %v15) ({
^bb0(%v16: tensor<i32>, %v17: tensor<i32>):
%v18 = "stablehlo.add"(%v16, %v17) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v18) : (tensor<i32>) -> ()
}) {window_dimensions = array<i64: 4>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[3, 0]]> : tensor<1x2xi64>} : (tensor<4xi32>, tensor<i32>) -> (tensor<4xi32>)
%v20 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v22 = "stablehlo.subtract"(%v19, %v21) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v23 = "stablehlo.select"(%v1, %v22, %v12) {} : (tensor<4xi1>, tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v24 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<4xi32>
%v25 = "stablehlo.constant"() {value = dense<4> : tensor<4xi32>} : () -> tensor<4xi32>
%v28 = "stablehlo.optimization_barrier"(%v24) {} : (tensor<4xi32>) -> tensor<4xi32>
%v29 = "stablehlo.scatter"(%v25, %v23, %v28) ({
^bb0(%v26: tensor<i32>, %v27: tensor<i32>):
"stablehlo.return"(%v27) : (tensor<i32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true} : (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> (tensor<4xi32>)
%v30 = "stablehlo.gather"(%v0, %v29) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>, indices_are_sorted = false} : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
"func.return"(%v30, %v8) : (tensor<4xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4] }, dtype: F32, sizes: [4], strides: [1], extents: [] }
// output 1: Count { fresh: 0, axis: 0 }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<4xf32> , %v1: tensor<4xi1> ) -> (tensor<4xf32>, tensor<i64>) {
%v2 = "stablehlo.convert"(%v1) {} : (tensor<4xi1>) -> tensor<4xi32>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v7 = "stablehlo.reduce"(%v2, %v3) ({
^bb0(%v4: tensor<i32>, %v5: tensor<i32>):
%v6 = "stablehlo.add"(%v4, %v5) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v6) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<4xi32>, tensor<i32>) -> (tensor<i32>)
%v8 = "stablehlo.convert"(%v7) {} : (tensor<i32>) -> tensor<i64>
%v9 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<4xi32>
%v10 = "stablehlo.constant"() {value = dense<4> : tensor<i32>} : () -> tensor<i32>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v12 = "stablehlo.add"(%v9, %v11) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v13 = "stablehlo.convert"(%v1) {} : (tensor<4xi1>) -> tensor<4xi32>
%v14 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v15 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v19 = "stablehlo.reduce_window"(%v13, %v15) ({
^bb0(%v16: tensor<i32>, %v17: tensor<i32>):
%v18 = "stablehlo.add"(%v16, %v17) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v18) : (tensor<i32>) -> ()
}) {window_dimensions = array<i64: 4>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[3, 0]]> : tensor<1x2xi64>} : (tensor<4xi32>, tensor<i32>) -> (tensor<4xi32>)
%v20 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v22 = "stablehlo.subtract"(%v19, %v21) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v23 = "stablehlo.select"(%v1, %v22, %v12) {} : (tensor<4xi1>, tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v24 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<4xi32>
%v25 = "stablehlo.constant"() {value = dense<4> : tensor<4xi32>} : () -> tensor<4xi32>
%v28 = "stablehlo.scatter"(%v25, %v23, %v24) ({
^bb0(%v26: tensor<i32>, %v27: tensor<i32>):
"stablehlo.return"(%v27) : (tensor<i32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true} : (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> (tensor<4xi32>)
%v29 = "stablehlo.gather"(%v0, %v28) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>, indices_are_sorted = false} : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
"func.return"(%v29, %v8) : (tensor<4xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4] }, dtype: F32, sizes: [4], strides: [1], extents: [] }
// output 1: Count { fresh: 0, axis: 0 }

// index_put: self = tensor<4x5xbf16>, indices = tensor<3xi64>, values = tensor<3x5xbf16>, accumulate = true
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
module @torchtpu {
func.func public @main(%v0: tensor<4x5xbf16> , %v1: tensor<3xi64> , %v20: tensor<3x5xbf16> ) -> (tensor<4x5xbf16>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.negate"(%v2) {} : (tensor<i64>) -> tensor<i64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<3xi1>, tensor<3xi1>) -> tensor<3xi1>
%v9 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<3xi64>} : () -> tensor<3xi64>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v11 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i64>, %v13: tensor<i64>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v14) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<3xi64>, tensor<i64>) -> (tensor<i64>)
%v16 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v18 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v19 = "stablehlo.select"(%v17, %v18, %v15) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v21 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v22 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v23 = "stablehlo.compare"(%v1, %v22) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v24 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v26 = "stablehlo.add"(%v1, %v25) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v27 = "stablehlo.select"(%v23, %v26, %v1) {} : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v28 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v29 = "stablehlo.broadcast_in_dim"(%v28) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v30 = "stablehlo.maximum"(%v27, %v29) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v31 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v32 = "stablehlo.broadcast_in_dim"(%v31) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v33 = "stablehlo.minimum"(%v30, %v32) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v34 = "stablehlo.convert"(%v33) {} : (tensor<3xi64>) -> tensor<3xi32>
%v35 = "stablehlo.convert"(%v0) {} : (tensor<4x5xbf16>) -> tensor<4x5xf32>
%v36 = "stablehlo.convert"(%v20) {} : (tensor<3x5xbf16>) -> tensor<3x5xf32>
%v40 = "stablehlo.optimization_barrier"(%v36) {} : (tensor<3x5xf32>) -> tensor<3x5xf32>
%v41 = "stablehlo.scatter"(%v35, %v34, %v40) ({
^bb0(%v37: tensor<f32>, %v38: tensor<f32>):
%v39 = "stablehlo.add"(%v37, %v38) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v39) : (tensor<f32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<4x5xf32>, tensor<3xi32>, tensor<3x5xf32>) -> (tensor<4x5xf32>)
%v42 = "stablehlo.convert"(%v41) {} : (tensor<4x5xf32>) -> tensor<4x5xbf16>
"func.return"(%v42, %v19) : (tensor<4x5xbf16>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [4, 5] }, dtype: BF16, sizes: [4, 5], strides: [5, 1], extents: [] }
// output 1: Check(Check { error: Error { kind: Index, message: "index {number} is out of bounds for dimension 0 with size 4", is_located: false } })
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
module @torchtpu {
func.func public @main(%v0: tensor<4x5xbf16> , %v1: tensor<3xi64> , %v20: tensor<3x5xbf16> ) -> (tensor<4x5xbf16>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.negate"(%v2) {} : (tensor<i64>) -> tensor<i64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<3xi1>, tensor<3xi1>) -> tensor<3xi1>
%v9 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<3xi64>} : () -> tensor<3xi64>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v11 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i64>, %v13: tensor<i64>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v14) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<3xi64>, tensor<i64>) -> (tensor<i64>)
%v16 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v18 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v19 = "stablehlo.select"(%v17, %v18, %v15) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v21 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v22 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v23 = "stablehlo.compare"(%v1, %v22) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
%v24 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v26 = "stablehlo.add"(%v1, %v25) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v27 = "stablehlo.select"(%v23, %v26, %v1) {} : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v28 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v29 = "stablehlo.broadcast_in_dim"(%v28) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v30 = "stablehlo.maximum"(%v27, %v29) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v31 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v32 = "stablehlo.broadcast_in_dim"(%v31) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<3xi64>
%v33 = "stablehlo.minimum"(%v30, %v32) {} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
%v34 = "stablehlo.convert"(%v33) {} : (tensor<3xi64>) -> tensor<3xi32>
%v35 = "stablehlo.convert"(%v0) {} : (tensor<4x5xbf16>) -> tensor<4x5xf32>
%v36 = "stablehlo.convert"(%v20) {} : (tensor<3x5xbf16>) -> tensor<3x5xf32>
%v40 = "stablehlo.scatter"(%v35, %v34, %v36) ({
^bb0(%v37: tensor<f32>, %v38: tensor<f32>):
%v39 = "stablehlo.add"(%v37, %v38) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v39) : (tensor<f32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<4x5xf32>, tensor<3xi32>, tensor<3x5xf32>) -> (tensor<4x5xf32>)
%v41 = "stablehlo.convert"(%v40) {} : (tensor<4x5xf32>) -> tensor<4x5xbf16>
"func.return"(%v41, %v19) : (tensor<4x5xbf16>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [4, 5] }, dtype: BF16, sizes: [4, 5], strides: [5, 1], extents: [] }
// output 1: Check(Check { error: Error { kind: Index, message: "index {number} is out of bounds for dimension 0 with size 4", is_located: false } })

// gather: self = tensor<4x5xf32>, dim = 1, index = tensor<4x2xi64>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<4x5xf32> , %v1: tensor<4x2xi64> ) -> (tensor<4x2xf32>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<5> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<4x2xi64>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<4x2xi64>, tensor<4x2xi64>) -> tensor<4x2xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<4x2xi64>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<4x2xi64>, tensor<4x2xi64>) -> tensor<4x2xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<4x2xi1>, tensor<4x2xi1>) -> tensor<4x2xi1>
%v9 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<4x2xi64>} : () -> tensor<4x2xi64>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<4x2xi1>, tensor<4x2xi64>, tensor<4x2xi64>) -> tensor<4x2xi64>
%v11 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i64>, %v13: tensor<i64>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v14) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<4x2xi64>, tensor<i64>) -> (tensor<i64>)
%v16 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v18 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v19 = "stablehlo.select"(%v17, %v18, %v15) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v20 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<4x2xi64>
%v22 = "stablehlo.maximum"(%v1, %v21) {} : (tensor<4x2xi64>, tensor<4x2xi64>) -> tensor<4x2xi64>
%v23 = "stablehlo.constant"() {value = dense<5> : tensor<i64>} : () -> tensor<i64>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<4x2xi64>
%v25 = "stablehlo.minimum"(%v22, %v24) {} : (tensor<4x2xi64>, tensor<4x2xi64>) -> tensor<4x2xi64>
%v26 = "stablehlo.convert"(%v25) {} : (tensor<4x2xi64>) -> tensor<4x2xi32>
%v27 = "stablehlo.gather"(%v0, %v26) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false} : (tensor<4x5xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
"func.return"(%v27, %v19) : (tensor<4x2xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4, 2] }, dtype: F32, sizes: [4, 2], strides: [2, 1], extents: [] }
// output 1: Check(Check { error: Error { kind: Runtime, message: "index {number} is out of bounds for dimension 1 with size 5", is_located: false } })

// index_select: self = tensor<4x5xi64>, dim = 0, index = tensor<2xi32>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<4x5xi64> , %v1: tensor<2xi32> ) -> (tensor<2x5xi64>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<4> : tensor<i32>} : () -> tensor<i32>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2xi32>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2xi32>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
%v9 = "stablehlo.constant"() {value = dense<-2147483648> : tensor<2xi32>} : () -> tensor<2xi32>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<2xi1>, tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
%v11 = "stablehlo.constant"() {value = dense<-2147483648> : tensor<i32>} : () -> tensor<i32>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i32>, %v13: tensor<i32>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v14) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<2xi32>, tensor<i32>) -> (tensor<i32>)
%v16 = "stablehlo.constant"() {value = dense<-2147483648> : tensor<i32>} : () -> tensor<i32>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
%v18 = "stablehlo.convert"(%v15) {} : (tensor<i32>) -> tensor<i64>
%v19 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v20 = "stablehlo.select"(%v17, %v19, %v18) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v21 = "stablehlo.gather"(%v0, %v1) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>, indices_are_sorted = false} : (tensor<4x5xi64>, tensor<2xi32>) -> tensor<2x5xi64>
"func.return"(%v21, %v20) : (tensor<2x5xi64>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2, 5] }, dtype: I64, sizes: [2, 5], strides: [5, 1], extents: [] }
// output 1: Check(Check { error: Error { kind: Index, message: "index out of range in self", is_located: false } })

// scatter_add: self = tensor<4xf32>, dim = 0, index = tensor<6xi64>, src = tensor<6xf32>
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
module @torchtpu {
func.func public @main(%v0: tensor<4xf32> , %v1: tensor<6xi64> , %v27: tensor<6xf32> ) -> (tensor<4xf32>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<6xi1>, tensor<6xi1>) -> tensor<6xi1>
%v9 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<6xi64>} : () -> tensor<6xi64>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<6xi1>, tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
%v11 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i64>, %v13: tensor<i64>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v14) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<6xi64>, tensor<i64>) -> (tensor<i64>)
%v16 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v18 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v19 = "stablehlo.select"(%v17, %v18, %v15) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v20 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v22 = "stablehlo.maximum"(%v1, %v21) {} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
%v23 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v25 = "stablehlo.minimum"(%v22, %v24) {} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
%v26 = "stablehlo.convert"(%v25) {} : (tensor<6xi64>) -> tensor<6xi32>
%v31 = "stablehlo.optimization_barrier"(%v27) {} : (tensor<6xf32>) -> tensor<6xf32>
%v32 = "stablehlo.scatter"(%v0, %v26, %v31) ({
^bb0(%v28: tensor<f32>, %v29: tensor<f32>):
%v30 = "stablehlo.add"(%v28, %v29) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v30) : (tensor<f32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<4xf32>, tensor<6xi32>, tensor<6xf32>) -> (tensor<4xf32>)
"func.return"(%v32, %v19) : (tensor<4xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4] }, dtype: F32, sizes: [4], strides: [1], extents: [] }
// output 1: Check(Check { error: Error { kind: Runtime, message: "index {number} is out of bounds for dimension 0 with size 4", is_located: false } })
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
module @torchtpu {
func.func public @main(%v0: tensor<4xf32> , %v1: tensor<6xi64> , %v27: tensor<6xf32> ) -> (tensor<4xf32>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<6xi1>, tensor<6xi1>) -> tensor<6xi1>
%v9 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<6xi64>} : () -> tensor<6xi64>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<6xi1>, tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
%v11 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i64>, %v13: tensor<i64>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v14) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<6xi64>, tensor<i64>) -> (tensor<i64>)
%v16 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v18 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v19 = "stablehlo.select"(%v17, %v18, %v15) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v20 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v22 = "stablehlo.maximum"(%v1, %v21) {} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
%v23 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<6xi64>
%v25 = "stablehlo.minimum"(%v22, %v24) {} : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
%v26 = "stablehlo.convert"(%v25) {} : (tensor<6xi64>) -> tensor<6xi32>
%v31 = "stablehlo.scatter"(%v0, %v26, %v27) ({
^bb0(%v28: tensor<f32>, %v29: tensor<f32>):
%v30 = "stablehlo.add"(%v28, %v29) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v30) : (tensor<f32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<4xf32>, tensor<6xi32>, tensor<6xf32>) -> (tensor<4xf32>)
"func.return"(%v31, %v19) : (tensor<4xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [4] }, dtype: F32, sizes: [4], strides: [1], extents: [] }
// output 1: Check(Check { error: Error { kind: Runtime, message: "index {number} is out of bounds for dimension 0 with size 4", is_located: false } })

// scatter.value: self = tensor<4xui8>, dim = 0, index = tensor<2xi64>, value = a number of i64
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Scalar { index: 0, dtype: U8 }
// NumberCheck { index: 0, dtype: U8, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<4xui8> , %v1: tensor<2xi64> , %v27: tensor<ui8> ) -> (tensor<4xui8>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2xi64>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2xi64>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
%v9 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<2xi64>} : () -> tensor<2xi64>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<2xi1>, tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
%v11 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i64>, %v13: tensor<i64>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v14) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<2xi64>, tensor<i64>) -> (tensor<i64>)
%v16 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v18 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v19 = "stablehlo.select"(%v17, %v18, %v15) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v20 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2xi64>
%v22 = "stablehlo.maximum"(%v1, %v21) {} : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
%v23 = "stablehlo.constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2xi64>
%v25 = "stablehlo.minimum"(%v22, %v24) {} : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
%v26 = "stablehlo.convert"(%v25) {} : (tensor<2xi64>) -> tensor<2xi32>
%v28 = "stablehlo.broadcast_in_dim"(%v27) {broadcast_dimensions = array<i64>} : (tensor<ui8>) -> tensor<2xui8>
%v31 = "stablehlo.scatter"(%v0, %v26, %v28) ({
^bb0(%v29: tensor<ui8>, %v30: tensor<ui8>):
"stablehlo.return"(%v30) : (tensor<ui8>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<4xui8>, tensor<2xi32>, tensor<2xui8>) -> (tensor<4xui8>)
"func.return"(%v31, %v19) : (tensor<4xui8>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: U8, dims: [4] }, dtype: U8, sizes: [4], strides: [1], extents: [] }
// output 1: Check(Check { error: Error { kind: Runtime, message: "index {number} is out of bounds for dimension 0 with size 4", is_located: false } })

// nonzero: self = tensor<2x3xf32>
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2x6xi64>, tensor<i64>) {
%v1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v3 = "stablehlo.compare"(%v0, %v2) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v4 = "stablehlo.reshape"(%v3) {} : (tensor<2x3xi1>) -> tensor<6xi1>
%v5 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v10 = "stablehlo.reduce"(%v5, %v6) ({
^bb0(%v7: tensor<i32>, %v8: tensor<i32>):
%v9 = "stablehlo.add"(%v7, %v8) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v9) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<6xi32>, tensor<i32>) -> (tensor<i32>)
%v11 = "stablehlo.convert"(%v10) {} : (tensor<i32>) -> tensor<i64>
%v12 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<6xi32>
%v13 = "stablehlo.constant"() {value = dense<6> : tensor<i32>} : () -> tensor<i32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v15 = "stablehlo.add"(%v12, %v14) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v16 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v17 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v18 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v22 = "stablehlo.reduce_window"(%v16, %v18) ({
^bb0(%v19: tensor<i32>, %v20: tensor<i32>):
%v21 = "stablehlo.add"(%v19, %v20) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v21) : (tensor<i32>) -> ()
}) {window_dimensions = array<i64: 6>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[5, 0]]> : tensor<1x2xi64>} : (tensor<6xi32>, tensor<i32>) -> (tensor<6xi32>)
%v23 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v25 = "stablehlo.subtract"(%v22, %v24) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v26 = "stablehlo.select"(%v4, %v25, %v15) {} : (tensor<6xi1>, tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v27 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<6xi32>
%v28 = "stablehlo.constant"() {value = dense<6> : tensor<6xi32>} : () -> tensor<6xi32>
%v31 = "stablehlo.optimization_barrier"(%v27) {} : (tensor<6xi32>) -> tensor<6xi32>
%v32 = "stablehlo.scatter"(%v28, %v26, %v31) ({
^bb0(%v29: tensor<i32>, %v30: tensor<i32>):
"stablehlo.return"(%v30) : (tensor<i32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true} : (tensor<6xi32>, tensor<6xi32>, tensor<6xi32>) -> (tensor<6xi32>)
%v33 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v34 = "stablehlo.broadcast_in_dim"(%v33) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v35 = "stablehlo.divide"(%v32, %v34) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v36 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v37 = "stablehlo.broadcast_in_dim"(%v36) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v38 = "stablehlo.remainder"(%v32, %v37) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v39 = "stablehlo.convert"(%v35) {} : (tensor<6xi32>) -> tensor<6xi64>
%v40 = "stablehlo.reshape"(%v39) {} : (tensor<6xi64>) -> tensor<6x1xi64>
%v41 = "stablehlo.convert"(%v38) {} : (tensor<6xi32>) -> tensor<6xi64>
%v42 = "stablehlo.reshape"(%v41) {} : (tensor<6xi64>) -> tensor<6x1xi64>
%v43 = "stablehlo.concatenate"(%v40, %v42) {dimension = 1 : i64} : (tensor<6x1xi64>, tensor<6x1xi64>) -> tensor<6x2xi64>
%v44 = "stablehlo.transpose"(%v43) {permutation = array<i64: 1, 0>} : (tensor<6x2xi64>) -> tensor<2x6xi64>
"func.return"(%v44, %v11) : (tensor<2x6xi64>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2, 6] }, dtype: I64, sizes: [6, 2], strides: [1, 6], extents: [] }
// output 1: Count { fresh: 0, axis: 0 }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2x6xi64>, tensor<i64>) {
%v1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v3 = "stablehlo.compare"(%v0, %v2) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v4 = "stablehlo.reshape"(%v3) {} : (tensor<2x3xi1>) -> tensor<6xi1>
%v5 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v10 = "stablehlo.reduce"(%v5, %v6) ({
^bb0(%v7: tensor<i32>, %v8: tensor<i32>):
%v9 = "stablehlo.add"(%v7, %v8) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v9) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<6xi32>, tensor<i32>) -> (tensor<i32>)
%v11 = "stablehlo.convert"(%v10) {} : (tensor<i32>) -> tensor<i64>
%v12 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<6xi32>
%v13 = "stablehlo.constant"() {value = dense<6> : tensor<i32>} : () -> tensor<i32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v15 = "stablehlo.add"(%v12, %v14) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v16 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v17 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v18 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v22 = "stablehlo.reduce_window"(%v16, %v18) ({
^bb0(%v19: tensor<i32>, %v20: tensor<i32>):
%v21 = "stablehlo.add"(%v19, %v20) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v21) : (tensor<i32>) -> ()
}) {window_dimensions = array<i64: 6>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[5, 0]]> : tensor<1x2xi64>} : (tensor<6xi32>, tensor<i32>) -> (tensor<6xi32>)
%v23 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v25 = "stablehlo.subtract"(%v22, %v24) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v26 = "stablehlo.select"(%v4, %v25, %v15) {} : (tensor<6xi1>, tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v27 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<6xi32>
%v28 = "stablehlo.constant"() {value = dense<6> : tensor<6xi32>} : () -> tensor<6xi32>
%v31 = "stablehlo.scatter"(%v28, %v26, %v27) ({
^bb0(%v29: tensor<i32>, %v30: tensor<i32>):
"stablehlo.return"(%v30) : (tensor<i32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true} : (tensor<6xi32>, tensor<6xi32>, tensor<6xi32>) -> (tensor<6xi32>)
%v32 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v33 = "stablehlo.broadcast_in_dim"(%v32) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v34 = "stablehlo.divide"(%v31, %v33) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v35 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v36 = "stablehlo.broadcast_in_dim"(%v35) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v37 = "stablehlo.remainder"(%v31, %v36) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v38 = "stablehlo.convert"(%v34) {} : (tensor<6xi32>) -> tensor<6xi64>
%v39 = "stablehlo.reshape"(%v38) {} : (tensor<6xi64>) -> tensor<6x1xi64>
%v40 = "stablehlo.convert"(%v37) {} : (tensor<6xi32>) -> tensor<6xi64>
%v41 = "stablehlo.reshape"(%v40) {} : (tensor<6xi64>) -> tensor<6x1xi64>
%v42 = "stablehlo.concatenate"(%v39, %v41) {dimension = 1 : i64} : (tensor<6x1xi64>, tensor<6x1xi64>) -> tensor<6x2xi64>
%v43 = "stablehlo.transpose"(%v42) {permutation = array<i64: 1, 0>} : (tensor<6x2xi64>) -> tensor<2x6xi64>
"func.return"(%v43, %v11) : (tensor<2x6xi64>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2, 6] }, dtype: I64, sizes: [6, 2], strides: [1, 6], extents: [] }
// output 1: Count { fresh: 0, axis: 0 }

// masked_select: self = tensor<2x3xf32>, mask = tensor<3xi1>
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<3xi1> ) -> (tensor<6xf32>, tensor<i64>) {
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64: 1>} : (tensor<3xi1>) -> tensor<2x3xi1>
%v3 = "stablehlo.constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
%v4 = "stablehlo.reshape"(%v2) {} : (tensor<2x3xi1>) -> tensor<6xi1>
%v5 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v10 = "stablehlo.reduce"(%v5, %v6) ({
^bb0(%v7: tensor<i32>, %v8: tensor<i32>):
%v9 = "stablehlo.add"(%v7, %v8) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v9) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<6xi32>, tensor<i32>) -> (tensor<i32>)
%v11 = "stablehlo.convert"(%v10) {} : (tensor<i32>) -> tensor<i64>
%v12 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<6xi32>
%v13 = "stablehlo.constant"() {value = dense<6> : tensor<i32>} : () -> tensor<i32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v15 = "stablehlo.add"(%v12, %v14) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v16 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v17 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v18 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v22 = "stablehlo.reduce_window"(%v16, %v18) ({
^bb0(%v19: tensor<i32>, %v20: tensor<i32>):
%v21 = "stablehlo.add"(%v19, %v20) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v21) : (tensor<i32>) -> ()
}) {window_dimensions = array<i64: 6>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[5, 0]]> : tensor<1x2xi64>} : (tensor<6xi32>, tensor<i32>) -> (tensor<6xi32>)
%v23 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v25 = "stablehlo.subtract"(%v22, %v24) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v26 = "stablehlo.select"(%v4, %v25, %v15) {} : (tensor<6xi1>, tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v27 = "stablehlo.reshape"(%v0) {} : (tensor<2x3xf32>) -> tensor<6xf32>
%v28 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<6xf32>} : () -> tensor<6xf32>
%v31 = "stablehlo.optimization_barrier"(%v27) {} : (tensor<6xf32>) -> tensor<6xf32>
%v32 = "stablehlo.scatter"(%v28, %v26, %v31) ({
^bb0(%v29: tensor<f32>, %v30: tensor<f32>):
"stablehlo.return"(%v30) : (tensor<f32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true} : (tensor<6xf32>, tensor<6xi32>, tensor<6xf32>) -> (tensor<6xf32>)
"func.return"(%v32, %v11) : (tensor<6xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [6] }, dtype: F32, sizes: [6], strides: [1], extents: [] }
// output 1: Count { fresh: 0, axis: 0 }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<3xi1> ) -> (tensor<6xf32>, tensor<i64>) {
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64: 1>} : (tensor<3xi1>) -> tensor<2x3xi1>
%v3 = "stablehlo.constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
%v4 = "stablehlo.reshape"(%v2) {} : (tensor<2x3xi1>) -> tensor<6xi1>
%v5 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v10 = "stablehlo.reduce"(%v5, %v6) ({
^bb0(%v7: tensor<i32>, %v8: tensor<i32>):
%v9 = "stablehlo.add"(%v7, %v8) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v9) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<6xi32>, tensor<i32>) -> (tensor<i32>)
%v11 = "stablehlo.convert"(%v10) {} : (tensor<i32>) -> tensor<i64>
%v12 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<6xi32>
%v13 = "stablehlo.constant"() {value = dense<6> : tensor<i32>} : () -> tensor<i32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v15 = "stablehlo.add"(%v12, %v14) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v16 = "stablehlo.convert"(%v4) {} : (tensor<6xi1>) -> tensor<6xi32>
%v17 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v18 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v22 = "stablehlo.reduce_window"(%v16, %v18) ({
^bb0(%v19: tensor<i32>, %v20: tensor<i32>):
%v21 = "stablehlo.add"(%v19, %v20) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v21) : (tensor<i32>) -> ()
}) {window_dimensions = array<i64: 6>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[5, 0]]> : tensor<1x2xi64>} : (tensor<6xi32>, tensor<i32>) -> (tensor<6xi32>)
%v23 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<6xi32>
%v25 = "stablehlo.subtract"(%v22, %v24) {} : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v26 = "stablehlo.select"(%v4, %v25, %v15) {} : (tensor<6xi1>, tensor<6xi32>, tensor<6xi32>) -> tensor<6xi32>
%v27 = "stablehlo.reshape"(%v0) {} : (tensor<2x3xf32>) -> tensor<6xf32>
%v28 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<6xf32>} : () -> tensor<6xf32>
%v31 = "stablehlo.scatter"(%v28, %v26, %v27) ({
^bb0(%v29: tensor<f32>, %v30: tensor<f32>):
"stablehlo.return"(%v30) : (tensor<f32>) -> ()
}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true} : (tensor<6xf32>, tensor<6xi32>, tensor<6xf32>) -> (tensor<6xf32>)
"func.return"(%v31, %v11) : (tensor<6xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [6] }, dtype: F32, sizes: [6], strides: [1], extents: [] }
// output 1: Count { fresh: 0, axis: 0 }
