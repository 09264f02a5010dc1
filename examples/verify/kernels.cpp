#include "kernels.hpp"

namespace linrec::verify {

namespace {

constexpr KernelEntry entries[] = {
    {"mamba2_ssd", run_mamba2<double>, run_mamba2<float>,
     R"(  in.x [B,T,H,P]  in.dt [B,T,H]  in.A [H], at most 0  in.B, in.C [B,T,G,N]
  in.D [H] or [H,P]  in.dt_bias [H]  in.alpha [H]  in.initial_state [B,H,P,N]  (these may be missing)
  h_t = exp(dt A t^-alpha) h_{t-1} + dt x B^T,  y = h C + D x
  options: dt_softplus=1 makes dt = softplus(dt + dt_bias); dt_min, dt_max limit dt; position_offset
  out.y [B,T,H,P]  out.final_state [B,H,P,N]  out.A_scale [T,H], t^-alpha
)"},
    {"retention", run_retention<double>, run_retention<float>,
     R"(  in.q, in.k [B,T,H,K]  in.v [B,T,H,V]
  in.log_gamma [H], at most 0; missing: gamma = 1 - 2^(-5-h)
  in.alpha [H]  in.initial_state [B,H,K,V]  (may be missing)
  S_t = gamma^(t^-alpha) S_{t-1} + k v^T,  o = scale S^T q
  options: scale (K^-1/2), position_offset
  out.o [B,T,H,V]  out.final_state [B,H,K,V]
)"},
    {"gla", run_gla<double>, run_gla<float>,
     R"(  in.q, in.k, in.gk [B,T,H,K]  in.v [B,T,H,V]; gk is the log-decay, at most 0
  in.alpha [H]  in.initial_state [B,H,K,V]  (may be missing)
  S_t = diag(exp(gk t^-alpha)) S_{t-1} + k v^T,  o = scale S^T q
  options: scale (K^-1/2), position_offset
  out.o [B,T,H,V]  out.final_state [B,H,K,V]
)"},
    {"gated_delta_rule", run_gated_delta_rule<double>, run_gated_delta_rule<float>,
     R"(  in.q, in.k [B,T,G,K]  in.v [B,T,H,V]  in.g, in.beta [B,T,H]; g is the log-decay, at most 0
  in.alpha [H]  in.initial_state [B,H,K,V]  (may be missing)
  S' = exp(g t^-alpha) S_{t-1},  S_t = S' + beta k (v - S'^T k)^T,  o = scale S_t^T q
  options: scale (K^-1/2); qk_l2norm=1 makes q and k x / sqrt(sum x^2 + l2norm_eps) (1e-6); position_offset
  With more value heads than key heads (G < H), say HV for the value heads and H for the key heads.
  out.o [B,T,H,V]  out.final_state [B,H,K,V]
)"},
    {"rwkv7", run_rwkv7<double>, run_rwkv7<float>,
     R"(  mode=dplr: in.r, in.k, in.a, in.b, in.logw [B,T,H,K]  in.v [B,T,H,V]; logw is the log-decay, at most 0
  mode=rwkv (or any that begins so): in.r, in.k, in.kk_raw, in.a_gate, in.w_logit [B,T,H,K]  in.v [B,T,H,V];
    kk = kk_raw / max(|kk_raw|, 1e-12),  a = -kk,  b = kk a_gate,  logw = -e^(-1/2) sigmoid(w_logit)
  with PoST also in.w0_base [1], in.w0_delta [H K - 1] and the option train_length: the logit becomes
    w0 + w_logit - alpha log t, w0 = w0_base + cumsum(softplus(w0_delta)), alpha gap-aware, p = logsigmoid(w0)
  in.initial_state [B,H,V,K] may be missing
  S_t = S_{t-1} diag(w) + (S_{t-1} a) b^T + v k^T,  o = scale S r   (here S is [V,K]; a meets the state
    before its decay)
  options: position_offset, train_length, scale (1; mode=dplr only)
  out.o [B,T,H,V]  out.final_state [B,H,V,K]
)"},
    {"post_map", run_post_map<double>, run_post_map<float>,
     R"(  in.theta [1]  in.delta [N-1], p = theta + cumsum(softplus(delta))
  in.alpha_logits [N-1] with alpha_mode=learnable
  options: alpha_mode fixed, analytical, analytical_rwkv7 or learnable; train_length with the analytical
    ones (analytical_rwkv7 takes p as the logits w0, alpha from logsigmoid(w0)); position_offset; T
  out.p, out.alpha [N]  out.scale [T,N], t^-alpha
  out.logw [T,N], -e^(-1/2) sigmoid(w0 - alpha log t), analytical_rwkv7 only
)"},
    {"post_init", run_post_init<double>, run_post_init<float>,
     R"(  no inputs; options: kind mamba2, gdn, gla or rwkv7; N, train_length, base_dt
  out.target [N], the wanted log-rates  out.theta [1], out.delta [N-1], the parameters that give them
  out.p [N], what the parameters give   out.delta_released, out.p_released, by the published inverse
    log(exp(gap) - 1 + 1e-6)
  the option dt_bias, if there, is checked like an output against the bias whose softplus is base_dt
)",
     "dt_bias"},
};

}  // namespace

std::span<const KernelEntry> kernel_table() { return entries; }

std::string_view name_of(Way way) {
  switch (way) {
    case Way::steps:
      return "steps";
    case Way::prefill:
      return "prefill";
    case Way::splits:
      return "splits";
    case Way::map:
      return "map";
  }
  return "";
}

}  // namespace linrec::verify
