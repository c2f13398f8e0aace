// a decomposition: self = tensor<2x3xf32>
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> ) -> (tensor<2x3xf32>) {
%v1 = "stablehlo.exponential"(%v0) {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
%v2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v6 = "stablehlo.reduce"(%v1, %v2) ({
^bb0(%v3: tensor<f32>, %v4: tensor<f32>):
%v5 = "stablehlo.add"(%v3, %v4) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v5) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v7 = "stablehlo.reshape"(%v6) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v9 = "stablehlo.divide"(%v1, %v8) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v9) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }

// a node without a row: self = tensor<2xf32>
// NotImplemented: unheard_of has no lowering

// higher_order::cond: pred = tensor<i1>, x = tensor<2xf32>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<i1> , %v1: tensor<2xf32> ) -> (tensor<2xf32>) {
%v4 = "stablehlo.if"(%v0) ({
%v2 = "stablehlo.sine"(%v1) {} : (tensor<2xf32>) -> tensor<2xf32>
"stablehlo.return"(%v2) : (tensor<2xf32>) -> ()
}, {
%v3 = "stablehlo.cosine"(%v1) {} : (tensor<2xf32>) -> tensor<2xf32>
"stablehlo.return"(%v3) : (tensor<2xf32>) -> ()
}) {} : (tensor<i1>) -> (tensor<2xf32>)
"func.return"(%v4) : (tensor<2xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2] }, dtype: F32, sizes: [2], strides: [1], extents: [] }

// higher_order::while_loop: x = tensor<i64>
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<i64> ) -> (tensor<i64>) {
%v7 = "stablehlo.while"(%v0) ({
^bb0(%v1: tensor<i64>):
%v2 = "stablehlo.constant"() {value = dense<100> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.compare"(%v1, %v2) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
"stablehlo.return"(%v3) : (tensor<i1>) -> ()
}, {
^bb0(%v4: tensor<i64>):
%v5 = "stablehlo.constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
%v6 = "stablehlo.multiply"(%v4, %v5) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v6) : (tensor<i64>) -> ()
}) {} : (tensor<i64>) -> (tensor<i64>)
"func.return"(%v7) : (tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [] }, dtype: I64, sizes: [], strides: [], extents: [] }
