// Models from published checkpoints.
//
//   project                    told by                                      architecture              read by
//   BlinkDL's RWKV-7           the tensor blocks.0.att.r_k; no config.json  rwkv7                     rwkv7
//   state-spaces/mamba         "ssm_cfg": {"layer": "Mamba2"}               mamba2                    mamba2
//   Hugging Face transformers  "model_type": "mamba2"                       mamba2                    mamba2
//   fla                        "gated_deltanet"; "gla"; "retnet"            gated_delta_net; as told  fla
//                              "rwkv7"                                      rwkv7                     rwkv7
//   PoST                       "mamba2_post"; "rwkv7_post"                  mamba2; rwkv7             as told
//                              "post_gated_deltanet"                        gated_delta_net           fla
//   Echo                       "koopman_lm" or "echo"                       echo                      echo
//
// The last column is a header, rwkv7_models.hpp for instance. In each project a block whose rates are PoST's
// (A_log_base, w0_base) becomes a PoST layer.
#pragma once

#include <filesystem>
#include <string>

#include "linrec/io/checkpoint.hpp"
#include "linrec/io/echo_models.hpp"
#include "linrec/io/fla_models.hpp"
#include "linrec/io/mamba2_models.hpp"
#include "linrec/io/rwkv7_models.hpp"

namespace linrec::io {

/// Builds the model of a checkpoint, with all arithmetic in Scalar. Weights stored as what they are in memory
/// are read where they lie in the mapped file; others are converted once.
/// @param storage in memory, of what a model has most of: bfloat16 halves the memory of float and nearly the
///   time of a step, as that reads all weights; "widened" keeps every bit of the file for any scalar.
/// @throws FormatError, naming the file and the key of its config, or the checkpoint and all tensors that are
///   missing, unexpected or of another shape at once. Nothing is half-loaded.
template <class Scalar>
LanguageModel<Scalar> load_model(const Checkpoint& checkpoint,
                                 WeightStorage storage = WeightStorage::widened) {
  if (checkpoint.contains("blocks.0.att.r_k")) return detail::load_blinkdl_rwkv7<Scalar>(checkpoint, storage);
  if (!checkpoint.config())
    throw FormatError(
        message("checkpoint '", checkpoint.name(),
                "': expected a config.json beside it, or the tensor 'blocks.0.att.r_k' of RWKV-7, "
                "found neither"));
  const ConfigReader& config = *checkpoint.config();
  const std::string type = config.text("model_type", config.has("ssm_cfg") ? "state-spaces" : "");
  if (type == "state-spaces") return detail::load_state_spaces<Scalar>(checkpoint, storage, config);
  if (type == "mamba2") return detail::load_transformers<Scalar>(checkpoint, storage, config, false);
  if (type == "mamba2_post") return detail::load_transformers<Scalar>(checkpoint, storage, config, true);
  if (type == "gated_deltanet") return detail::load_gated_delta_net<Scalar>(checkpoint, storage, config);
  if (type == "post_gated_deltanet")
    return detail::load_post_gated_delta_net<Scalar>(checkpoint, storage, config);
  if (type == "gla") return detail::load_gla<Scalar>(checkpoint, storage, config);
  if (type == "retnet") return detail::load_retnet<Scalar>(checkpoint, storage, config);
  if (type == "rwkv7") return detail::load_fla_rwkv7<Scalar>(checkpoint, storage, config);
  if (type == "rwkv7_post") return detail::load_post_rwkv7<Scalar>(checkpoint, storage, config);
  if (type == "koopman_lm" || type == "echo") return detail::load_echo<Scalar>(checkpoint, storage, config);
  throw FormatError(message(
      "file '", config.name(),
      "': key 'model_type': expected one of mamba2, mamba2_post, gated_deltanet, post_gated_deltanet, gla, "
      "retnet, rwkv7, rwkv7_post, koopman_lm, echo, or the key 'ssm_cfg', got ",
      detail::in_quotes(type)));
}
template <class Scalar>
LanguageModel<Scalar> load_model(const std::filesystem::path& path,
                                 WeightStorage storage = WeightStorage::widened) {
  return load_model<Scalar>(Checkpoint(path), storage);
}

}  // namespace linrec::io
