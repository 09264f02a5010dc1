#include "file_format.hpp"

#include "kernels.hpp"

namespace linrec::verify {

namespace {

constexpr const char* introduction = R"(
What is checked
  Each case is computed in double and in float: token by token (steps), in one call (prefill), and in random
  pieces of 0 to 127 tokens, each of them prefilled or stepped, several times over (splits). A case without
  tokens (post_*) is computed the one way there is (map), whatever --way says. For each output the table gives
  the worst relative error, max|x - right| / max|right| (for models absolute, max|x - right|), and its bar:
    double  1e-11, or --tolerance-double
    float   4 max(f32.NAME, 2^-24), or --tolerance-float; f32.NAME is among the options of the file, the error
            that a straightforward float32 program makes on output NAME; 2e-6 if the file does not say
    model   1e-9 in double and 1e-4 in float, absolute, or these options
  result: ok; FAIL: an output is above its bar, or is nothing that the kernel computes; unknown: the case
  names a kernel, an option or an input that this tool does not know; error: the file cannot be read, lacks a
  tensor or contradicts itself. The other files run all the same.
  Exit status: 0 if something ran and all results are ok, 1 if not, 2 for a wrong command line.

A case
  is one safetensors file, a kernel with its inputs and the right outputs. All tensors are row-major.
    in.NAME    inputs. Store them as F32 (or F16, BF16), so that float and double read the same numbers
    out.NAME   right outputs, computed in F64. All that are there are checked; none has to be there, but one
    cot.NAME, grad.NAME, and (unless the kernel is a layer) tensors with other names are not read
  The options are the texts of __metadata__: numbers in decimal, flags 0 or 1. `kernel` says what to run, and
  what else a kernel reads is listed below; sizes (B, T, H, ...), has_initial_state, has_D and state
  (the orientation, such as "S[B,H,K,V]") may be given and must then agree. Other texts are remarks.

Conventions
  B batch, T tokens, H heads, G groups of heads (head h reads group h / (H/G)), K (or N) key and V (or P)
  value dimension. Vectors are columns; S [K,V] unless a kernel says otherwise. Order within a step: decay,
  write, read. Token i of a file has the position t = position_offset + i + 1 (position_offset is 0 if it is
  not given). alpha_h in [0,1] is the exponent of the taper, which scales decays and nothing else; without
  in.alpha there is no taper. initial_state is 0 if it is missing.

Layers
  in.x [B,T,D] gives out.y [B,T,D]. All tensors with other names than the above are the weights, under the
  names and with the shapes of the published checkpoints; none may be missing or left over. W is the width of
  the convolutions, whose caches are the last W raw inputs, oldest first.
    out.cache.NAME  caches after all tokens    cache_mid.NAME  after as many as the option cache_mid_after
  says; both are held against f32.cache.NAME in float. With PoST rates (..._base) the taper is learned if
  there are alpha_logits, gap-aware with the option train_length if not; the option alpha_mode, learnable or
  analytical, may say so too. Options have the default in parentheses, if there is one; d_model is D.

Models
  --model FILE|DIR --expected FILE loads a published checkpoint, and runs each case of the expected file, a
  safetensors file with these tensors for each NAME:
    NAME.token_ids [T]  NAME.logits [T,V], after each token, from an empty state
    NAME.state.att_x_prev, NAME.state.ffn_x_prev [L,D], NAME.state.wkv [L,H,V,K]  after all tokens; of RWKV-7
    NAME.rwkv_cpp_logits_last [V], rwkv.cpp's own after the last token, held against 1e-4 always
  All but the first two may be missing, and others are unknown.

In Python
  from safetensors.torch import save_file
  inputs = {name: x.float().contiguous() for name, x in dict(q=q, k=k, v=v, gk=gk).items()}  # round first,
  o, state = my_reference(**{name: x.double() for name, x in inputs.items()})                # then compute
  save_file({**{"in." + name: x for name, x in inputs.items()},
             "out.o": o.contiguous(), "out.final_state": state.contiguous()},
            "mine.safetensors", metadata={"kernel": "gla", "scale": str(q.shape[-1] ** -0.5)})

Kernels and layers
)";

}  // namespace

std::string file_format_text() {
  std::string text = introduction;
  for (const KernelEntry& kernel : kernel_table())
    text += std::string(kernel.name) + "\n" + std::string(kernel.format);
  return text;
}

}  // namespace linrec::verify
