// sum.dim_IntList: self = tensor<2x3xf32>, dim = [1], keepdim = true
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2x1xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v5 = "stablehlo.reduce"(%v0, %v1) ({
^bb0(%v2: tensor<f32>, %v3: tensor<f32>):
%v4 = "stablehlo.add"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v4) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v6 = "stablehlo.reshape"(%v5) {} : (tensor<2xf32>) -> tensor<2x1xf32>
"func.return"(%v6) : (tensor<2x1xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 1] }, dtype: F32, sizes: [2, 1], strides: [1, 1], extents: [] }

// sum.dim_IntList: self = tensor<2x3xi32>, dim = [], keepdim = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xi32> ) -> (tensor<i64>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<2x3xi32>) -> tensor<2x3xi64>
%v2 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v6 = "stablehlo.reduce"(%v1, %v2) ({
^bb0(%v3: tensor<i64>, %v4: tensor<i64>):
%v5 = "stablehlo.add"(%v3, %v4) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v5) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x3xi64>, tensor<i64>) -> (tensor<i64>)
"func.return"(%v6) : (tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [] }, dtype: I64, sizes: [], strides: [], extents: [] }

// mean.dim: self = tensor<2x3xbf16>, dim = [0], keepdim = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xbf16> ) -> (tensor<3xbf16>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<2x3xbf16>) -> tensor<2x3xf32>
%v2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v6 = "stablehlo.reduce"(%v1, %v2) ({
^bb0(%v3: tensor<f32>, %v4: tensor<f32>):
%v5 = "stablehlo.add"(%v3, %v4) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v5) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<3xf32>)
%v7 = "stablehlo.constant"() {value = dense<0x40000000> : tensor<f32>} : () -> tensor<f32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v9 = "stablehlo.divide"(%v6, %v8) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v10 = "stablehlo.convert"(%v9) {} : (tensor<3xf32>) -> tensor<3xbf16>
"func.return"(%v10) : (tensor<3xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [3] }, dtype: BF16, sizes: [3], strides: [1], extents: [] }

// var.correction: self = tensor<2x3xf32>, dim = [1], correction = Int(1), keepdim = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v5 = "stablehlo.reduce"(%v0, %v1) ({
^bb0(%v2: tensor<f32>, %v3: tensor<f32>):
%v4 = "stablehlo.add"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v4) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v6 = "stablehlo.constant"() {value = dense<0x40400000> : tensor<f32>} : () -> tensor<f32>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2xf32>
%v8 = "stablehlo.divide"(%v5, %v7) {} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
%v9 = "stablehlo.reshape"(%v8) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v10 = "stablehlo.broadcast_in_dim"(%v9) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v11 = "stablehlo.subtract"(%v0, %v10) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v12 = "stablehlo.multiply"(%v11, %v11) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v13 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v17 = "stablehlo.reduce"(%v12, %v13) ({
^bb0(%v14: tensor<f32>, %v15: tensor<f32>):
%v16 = "stablehlo.add"(%v14, %v15) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v16) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v18 = "stablehlo.reshape"(%v17) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v19 = "stablehlo.constant"() {value = dense<0x40000000> : tensor<f32>} : () -> tensor<f32>
%v20 = "stablehlo.broadcast_in_dim"(%v19) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x1xf32>
%v21 = "stablehlo.divide"(%v18, %v20) {} : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
%v22 = "stablehlo.reshape"(%v21) {} : (tensor<2x1xf32>) -> tensor<2xf32>
%v23 = "stablehlo.reshape"(%v9) {} : (tensor<2x1xf32>) -> tensor<2xf32>
"func.return"(%v22) : (tensor<2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2] }, dtype: F32, sizes: [2], strides: [1], extents: [] }

// amax: self = tensor<2x3xf32>, dim = [1], keepdim = false
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v8 = "stablehlo.reduce"(%v0, %v1) ({
^bb0(%v2: tensor<f32>, %v3: tensor<f32>):
%v4 = "stablehlo.compare"(%v3, %v2) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v5 = "stablehlo.compare"(%v3, %v3) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v6 = "stablehlo.or"(%v4, %v5) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
%v7 = "stablehlo.select"(%v6, %v3, %v2) {} : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v7) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
"func.return"(%v8) : (tensor<2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2] }, dtype: F32, sizes: [2], strides: [1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v5 = "stablehlo.reduce"(%v0, %v1) ({
^bb0(%v2: tensor<f32>, %v3: tensor<f32>):
%v4 = "stablehlo.maximum"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v4) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
"func.return"(%v5) : (tensor<2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2] }, dtype: F32, sizes: [2], strides: [1], extents: [] }

// amax: self = tensor<2x3xi64>, dim = [1], keepdim = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xi64> ) -> (tensor<2xi64>) {
%v1 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v5 = "stablehlo.reduce"(%v0, %v1) ({
^bb0(%v2: tensor<i64>, %v3: tensor<i64>):
%v4 = "stablehlo.maximum"(%v2, %v3) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v4) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xi64>, tensor<i64>) -> (tensor<2xi64>)
"func.return"(%v5) : (tensor<2xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2] }, dtype: I64, sizes: [2], strides: [1], extents: [] }

// argmax: self = tensor<2x3xf32>, dim = 1, keepdim = false
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2xi64>) {
%v1 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v8 = "stablehlo.reduce"(%v0, %v1) ({
^bb0(%v2: tensor<f32>, %v3: tensor<f32>):
%v4 = "stablehlo.compare"(%v3, %v2) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v5 = "stablehlo.compare"(%v3, %v3) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v6 = "stablehlo.or"(%v4, %v5) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
%v7 = "stablehlo.select"(%v6, %v3, %v2) {} : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v7) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v9 = "stablehlo.reshape"(%v8) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v10 = "stablehlo.broadcast_in_dim"(%v9) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v11 = "stablehlo.compare"(%v0, %v10) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v12 = "stablehlo.compare"(%v0, %v0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v13 = "stablehlo.or"(%v11, %v12) {} : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
%v14 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x3xi32>
%v15 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v16 = "stablehlo.broadcast_in_dim"(%v15) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2x3xi32>
%v17 = "stablehlo.select"(%v13, %v14, %v16) {} : (tensor<2x3xi1>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
%v18 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v22 = "stablehlo.reduce"(%v17, %v18) ({
^bb0(%v19: tensor<i32>, %v20: tensor<i32>):
%v21 = "stablehlo.minimum"(%v19, %v20) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v21) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xi32>, tensor<i32>) -> (tensor<2xi32>)
%v23 = "stablehlo.convert"(%v22) {} : (tensor<2xi32>) -> tensor<2xi64>
"func.return"(%v23) : (tensor<2xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2] }, dtype: I64, sizes: [2], strides: [1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2xi64>) {
%v1 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v5 = "stablehlo.reduce"(%v0, %v1) ({
^bb0(%v2: tensor<f32>, %v3: tensor<f32>):
%v4 = "stablehlo.maximum"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v4) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v6 = "stablehlo.reshape"(%v5) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v8 = "stablehlo.compare"(%v0, %v7) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v9 = "stablehlo.compare"(%v0, %v0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v10 = "stablehlo.or"(%v8, %v9) {} : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
%v11 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x3xi32>
%v12 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v13 = "stablehlo.broadcast_in_dim"(%v12) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2x3xi32>
%v14 = "stablehlo.select"(%v10, %v11, %v13) {} : (tensor<2x3xi1>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
%v15 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v19 = "stablehlo.reduce"(%v14, %v15) ({
^bb0(%v16: tensor<i32>, %v17: tensor<i32>):
%v18 = "stablehlo.minimum"(%v16, %v17) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v18) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xi32>, tensor<i32>) -> (tensor<2xi32>)
%v20 = "stablehlo.convert"(%v19) {} : (tensor<2xi32>) -> tensor<2xi64>
"func.return"(%v20) : (tensor<2xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2] }, dtype: I64, sizes: [2], strides: [1], extents: [] }

// cumsum: self = tensor<2x3xf32>, dim = 1
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2x3xf32>) {
%v1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v6 = "stablehlo.reduce_window"(%v0, %v2) ({
^bb0(%v3: tensor<f32>, %v4: tensor<f32>):
%v5 = "stablehlo.add"(%v3, %v4) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v5) : (tensor<f32>) -> ()
}) {window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 1>, base_dilations = array<i64: 1, 1>, window_dilations = array<i64: 1, 1>, padding = dense<[[0, 0], [2, 0]]> : tensor<2x2xi64>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2x3xf32>)
"func.return"(%v6) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }

// sort.stable: self = tensor<2x3xf32>, stable = true, dim = -1, descending = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2x3xf32>, tensor<2x3xi64>) {
%v1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v3 = "stablehlo.compare"(%v0, %v2) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v4 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v5 = "stablehlo.select"(%v3, %v4, %v0) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v6 = "stablehlo.bitcast_convert"(%v5) {} : (tensor<2x3xf32>) -> tensor<2x3xui32>
%v7 = "stablehlo.constant"() {value = dense<2147483648> : tensor<ui32>} : () -> tensor<ui32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v9 = "stablehlo.and"(%v6, %v8) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v10 = "stablehlo.constant"() {value = dense<0> : tensor<ui32>} : () -> tensor<ui32>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v12 = "stablehlo.compare"(%v9, %v11) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xi1>
%v13 = "stablehlo.not"(%v6) {} : (tensor<2x3xui32>) -> tensor<2x3xui32>
%v14 = "stablehlo.constant"() {value = dense<2147483648> : tensor<ui32>} : () -> tensor<ui32>
%v15 = "stablehlo.broadcast_in_dim"(%v14) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v16 = "stablehlo.or"(%v6, %v15) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v17 = "stablehlo.select"(%v12, %v13, %v16) {} : (tensor<2x3xi1>, tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v18 = "stablehlo.compare"(%v0, %v0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v19 = "stablehlo.constant"() {value = dense<4294967295> : tensor<2x3xui32>} : () -> tensor<2x3xui32>
%v20 = "stablehlo.select"(%v18, %v19, %v17) {} : (tensor<2x3xi1>, tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v21 = "stablehlo.convert"(%v20) {} : (tensor<2x3xui32>) -> tensor<2x3xui64>
%v22 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
%v24 = "stablehlo.shift_left"(%v21, %v23) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v25 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x3xui64>
%v26 = "stablehlo.constant"() {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
%v27 = "stablehlo.broadcast_in_dim"(%v26) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
%v28 = "stablehlo.shift_left"(%v25, %v27) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v29 = "stablehlo.or"(%v24, %v28) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v30 = "stablehlo.bitcast_convert"(%v0) {} : (tensor<2x3xf32>) -> tensor<2x3xui32>
%v31 = "stablehlo.constant"() {value = dense<2147483648> : tensor<ui32>} : () -> tensor<ui32>
%v32 = "stablehlo.broadcast_in_dim"(%v31) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v33 = "stablehlo.compare"(%v30, %v32) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xi1>
%v34 = "stablehlo.convert"(%v33) {} : (tensor<2x3xi1>) -> tensor<2x3xui64>
%v35 = "stablehlo.or"(%v29, %v34) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v39 = "stablehlo.sort"(%v35) ({
^bb0(%v36: tensor<ui64>, %v37: tensor<ui64>):
%v38 = "stablehlo.compare"(%v36, %v37) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
"stablehlo.return"(%v38) : (tensor<i1>) -> ()
}) {dimension = 1 : i64, is_stable = false} : (tensor<2x3xui64>) -> (tensor<2x3xui64>)
%v40 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
%v41 = "stablehlo.broadcast_in_dim"(%v40) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
%v42 = "stablehlo.shift_right_logical"(%v39, %v41) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v43 = "stablehlo.convert"(%v42) {} : (tensor<2x3xui64>) -> tensor<2x3xui32>
%v44 = "stablehlo.constant"() {value = dense<2147483648> : tensor<ui32>} : () -> tensor<ui32>
%v45 = "stablehlo.broadcast_in_dim"(%v44) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v46 = "stablehlo.and"(%v43, %v45) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v47 = "stablehlo.constant"() {value = dense<0> : tensor<ui32>} : () -> tensor<ui32>
%v48 = "stablehlo.broadcast_in_dim"(%v47) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v49 = "stablehlo.compare"(%v46, %v48) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xi1>
%v50 = "stablehlo.constant"() {value = dense<2147483648> : tensor<ui32>} : () -> tensor<ui32>
%v51 = "stablehlo.broadcast_in_dim"(%v50) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v52 = "stablehlo.xor"(%v43, %v51) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v53 = "stablehlo.not"(%v43) {} : (tensor<2x3xui32>) -> tensor<2x3xui32>
%v54 = "stablehlo.select"(%v49, %v52, %v53) {} : (tensor<2x3xi1>, tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v55 = "stablehlo.bitcast_convert"(%v54) {} : (tensor<2x3xui32>) -> tensor<2x3xf32>
%v56 = "stablehlo.constant"() {value = dense<4294967295> : tensor<ui32>} : () -> tensor<ui32>
%v57 = "stablehlo.broadcast_in_dim"(%v56) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v58 = "stablehlo.compare"(%v43, %v57) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xi1>
%v59 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v60 = "stablehlo.select"(%v58, %v59, %v55) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v61 = "stablehlo.constant"() {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
%v62 = "stablehlo.broadcast_in_dim"(%v61) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
%v63 = "stablehlo.and"(%v39, %v62) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v64 = "stablehlo.constant"() {value = dense<0> : tensor<ui64>} : () -> tensor<ui64>
%v65 = "stablehlo.broadcast_in_dim"(%v64) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
%v66 = "stablehlo.compare"(%v63, %v65) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xi1>
%v67 = "stablehlo.constant"() {value = dense<0x80000000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v68 = "stablehlo.select"(%v66, %v67, %v60) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v69 = "stablehlo.constant"() {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
%v70 = "stablehlo.broadcast_in_dim"(%v69) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
%v71 = "stablehlo.shift_right_logical"(%v39, %v70) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v72 = "stablehlo.constant"() {value = dense<2147483647> : tensor<ui64>} : () -> tensor<ui64>
%v73 = "stablehlo.broadcast_in_dim"(%v72) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
%v74 = "stablehlo.and"(%v71, %v73) {} : (tensor<2x3xui64>, tensor<2x3xui64>) -> tensor<2x3xui64>
%v75 = "stablehlo.convert"(%v74) {} : (tensor<2x3xui64>) -> tensor<2x3xi64>
"func.return"(%v68, %v75) : (tensor<2x3xf32>, tensor<2x3xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: I64, dims: [2, 3] }, dtype: I64, sizes: [2, 3], strides: [3, 1], extents: [] }

// topk: self = tensor<8xi32>, k = 2, dim = -1, largest = true, sorted = true
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8xi32> ) -> (tensor<2xi32>, tensor<2xi64>) {
%v1 = "stablehlo.bitcast_convert"(%v0) {} : (tensor<8xi32>) -> tensor<8xui32>
%v2 = "stablehlo.constant"() {value = dense<2147483648> : tensor<ui32>} : () -> tensor<ui32>
%v3 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<8xui32>
%v4 = "stablehlo.xor"(%v1, %v3) {} : (tensor<8xui32>, tensor<8xui32>) -> tensor<8xui32>
%v5 = "stablehlo.not"(%v4) {} : (tensor<8xui32>) -> tensor<8xui32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<8xui32>) -> tensor<8xui64>
%v7 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<8xui64>
%v9 = "stablehlo.shift_left"(%v6, %v8) {} : (tensor<8xui64>, tensor<8xui64>) -> tensor<8xui64>
%v10 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<8xui64>
%v11 = "stablehlo.constant"() {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
%v12 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<8xui64>
%v13 = "stablehlo.shift_left"(%v10, %v12) {} : (tensor<8xui64>, tensor<8xui64>) -> tensor<8xui64>
%v14 = "stablehlo.or"(%v9, %v13) {} : (tensor<8xui64>, tensor<8xui64>) -> tensor<8xui64>
%v18 = "stablehlo.sort"(%v14) ({
^bb0(%v15: tensor<ui64>, %v16: tensor<ui64>):
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
"stablehlo.return"(%v17) : (tensor<i1>) -> ()
}) {dimension = 0 : i64, is_stable = false} : (tensor<8xui64>) -> (tensor<8xui64>)
%v19 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
%v20 = "stablehlo.broadcast_in_dim"(%v19) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<8xui64>
%v21 = "stablehlo.shift_right_logical"(%v18, %v20) {} : (tensor<8xui64>, tensor<8xui64>) -> tensor<8xui64>
%v22 = "stablehlo.convert"(%v21) {} : (tensor<8xui64>) -> tensor<8xui32>
%v23 = "stablehlo.not"(%v22) {} : (tensor<8xui32>) -> tensor<8xui32>
%v24 = "stablehlo.constant"() {value = dense<2147483648> : tensor<ui32>} : () -> tensor<ui32>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<8xui32>
%v26 = "stablehlo.xor"(%v23, %v25) {} : (tensor<8xui32>, tensor<8xui32>) -> tensor<8xui32>
%v27 = "stablehlo.bitcast_convert"(%v26) {} : (tensor<8xui32>) -> tensor<8xi32>
%v28 = "stablehlo.constant"() {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
%v29 = "stablehlo.broadcast_in_dim"(%v28) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<8xui64>
%v30 = "stablehlo.shift_right_logical"(%v18, %v29) {} : (tensor<8xui64>, tensor<8xui64>) -> tensor<8xui64>
%v31 = "stablehlo.constant"() {value = dense<2147483647> : tensor<ui64>} : () -> tensor<ui64>
%v32 = "stablehlo.broadcast_in_dim"(%v31) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<8xui64>
%v33 = "stablehlo.and"(%v30, %v32) {} : (tensor<8xui64>, tensor<8xui64>) -> tensor<8xui64>
%v34 = "stablehlo.convert"(%v33) {} : (tensor<8xui64>) -> tensor<8xi64>
%v35 = "stablehlo.slice"(%v27) {start_indices = array<i64: 0>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<8xi32>) -> tensor<2xi32>
%v36 = "stablehlo.slice"(%v34) {start_indices = array<i64: 0>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<8xi64>) -> tensor<2xi64>
"func.return"(%v35, %v36) : (tensor<2xi32>, tensor<2xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I32, dims: [2] }, dtype: I32, sizes: [2], strides: [1], extents: [] }
// output 1: Fresh { base: Type { dtype: I64, dims: [2] }, dtype: I64, sizes: [2], strides: [1], extents: [] }

// any.dim: self = tensor<2x3xf32>, dim = 0, keepdim = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<3xi1>) {
%v1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v3 = "stablehlo.compare"(%v0, %v2) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v4 = "stablehlo.constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
%v8 = "stablehlo.reduce"(%v3, %v4) ({
^bb0(%v5: tensor<i1>, %v6: tensor<i1>):
%v7 = "stablehlo.or"(%v5, %v6) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
"stablehlo.return"(%v7) : (tensor<i1>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<2x3xi1>, tensor<i1>) -> (tensor<3xi1>)
"func.return"(%v8) : (tensor<3xi1>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: Bool, dims: [3] }, dtype: Bool, sizes: [3], strides: [1], extents: [] }

// sum.dim_IntList: self = tensor<2x3xf32>, dim = [2], keepdim = false
// Index: Dimension out of range (expected to be in range of [-2, 1], but got 2)

// linalg_vector_norm: self = tensor<2x3xf16>, ord = Int(2), dim = [1], keepdim = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf16> ) -> (tensor<2xf16>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<2x3xf16>) -> tensor<2x3xf32>
%v2 = "stablehlo.multiply"(%v1, %v1) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v3 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v7 = "stablehlo.reduce"(%v2, %v3) ({
^bb0(%v4: tensor<f32>, %v5: tensor<f32>):
%v6 = "stablehlo.add"(%v4, %v5) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v6) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v8 = "stablehlo.sqrt"(%v7) {} : (tensor<2xf32>) -> tensor<2xf32>
%v9 = "stablehlo.convert"(%v8) {} : (tensor<2xf32>) -> tensor<2xf16>
"func.return"(%v9) : (tensor<2xf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F16, dims: [2] }, dtype: F16, sizes: [2], strides: [1], extents: [] }
