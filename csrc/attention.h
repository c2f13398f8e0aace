// scaled_dot_product_attention (attention.cpp).
#pragma once

namespace torchtpu {

void register_attention();

}  // namespace torchtpu
