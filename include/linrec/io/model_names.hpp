// The names that each project gives to the parts of a model: one table.
#pragma once

#include <string>
#include <string_view>

namespace linrec::io {

struct ModelNames {
  std::string_view embedding;    ///< and ".weight"
  std::string_view blocks;       ///< and the number of a block
  std::string_view norm, mixer;  ///< of a block
  std::string_view mlp_norm, mlp;
  std::string_view final_norm, head;
  std::string_view embedding_norm = "";  ///< RWKV's, in full
};

namespace names {
//                                       embedding             blocks             norm         mixer
//                                       MLP's norm            MLP                final norm   head
inline constexpr ModelNames state_spaces{
    "backbone.embedding", "backbone.layers", "norm", "mixer", "norm2", "mlp", "backbone.norm_f", "lm_head"};
inline constexpr ModelNames transformers{
    "backbone.embeddings", "backbone.layers", "norm", "mixer", "norm2", "mlp", "backbone.norm_f", "lm_head"};
inline constexpr ModelNames fla{"model.embeddings", "model.layers", "attn_norm",  "attn",
                                "mlp_norm",         "mlp",          "model.norm", "lm_head"};
inline constexpr ModelNames fla_rwkv7{
    "model.embeddings", "model.layers",           "attn_norm", "attn", "ffn_norm", "ffn", "model.norm",
    "lm_head",          "model.layers.0.pre_norm"};
inline constexpr ModelNames blinkdl{"emb", "blocks", "ln1",  "att",         "ln2",
                                    "ffn", "ln_out", "head", "blocks.0.ln0"};
inline constexpr ModelNames post_mamba2{"embedding", "layers", "norm",   "mixer",
                                        "norm2",     "mlp",    "norm_f", "lm_head"};
inline constexpr ModelNames echo{"embed", "seq_layers", "norm",   "mamba",  // MLPs have blocks of their own
                                 "",      "",           "norm_f", "lm_head"};
inline constexpr ModelNames post{"embedding", "layers", "norm", "mixer",   "ffn_norm",
                                 "ffn",       "norm_f", "head", "pre_norm"};
}  // namespace names

}  // namespace linrec::io
