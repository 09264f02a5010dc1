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
    {"ska_prefix", run_ska_prefix<double>, run_ska_prefix<float>,
     R"(  in.z, in.zq [B,T,H,r], keys and queries  in.v [B,T,H,P]  in.mask [B,T], weights  in.eta, in.gamma []
  G = sum m_t z_t z_t^T,  M = sum m_t m_{t-1} z_t z_{t-1}^T,  Cv = sum m_t v_t z_t^T over all tokens,
  G + ridge_eps m^2 I = L L^T, m the longest key,  A_w = L^-1 M L^-T,
  y = eta Cv L^-T A^K L^-1 zq,  A = clamp(gamma, 1, 1.5) A_w / max(1, sigma)
  options: ridge_eps, power_K K (2), operator whitened, or minv, which puts M (G + ridge I)^-1 for A_w;
    norm_scope prefix, or sequence, which counts keys of weight 0 in m
  out.y [B,T,H,P]  out.sigma, out.sigma_svd [B,H], the estimate of 6 power iterations and the true value
)"},
    {"ska_streaming", run_ska_streaming<double>, run_ska_streaming<float>,
     R"(  the same without a mask; a token sees those before it and, with inclusive=1 (1), itself
  in.state.G, in.state.M [B,H,r,r]  in.state.C [B,H,P,r]  in.state.z_last [B,H,r]  in.state.max_norm [B,H]
    (all or none)
  out.state.* likewise  out.sigma, out.sigma_svd [B,T,H]
)"},
    {"ska_chunk", run_ska_chunk<double>, run_ska_chunk<float>,
     R"(  the same; a token sees the chunks before its own
  options: chunk; boundary_transition=1 lets M have the first key of the token's own chunk;
    norm_scope past, or sequence, which looks ahead for m
  out.sigma, out.sigma_svd [B, chunks, H]
)"},
    {"spectral_normalise", run_spectral_normalise<double>, run_spectral_normalise<float>,
     R"(  in.A [n,r,r]  out.A_normalised [n,r,r], A / max(sigma, 1)  out.sigma, out.sigma_svd [n]
)"},
    {"mamba2_layer", run_mamba2_layer<double>, run_mamba2_layer<float>,
     R"(  in_proj.weight [2 H P + 2 G N + H, D] for z, x, B, C, dt; conv1d.weight [H P + 2 G N, 1, W]
  dt_bias [H]  D [H] or [H P]  A_log [H], or A_log_base, A_log_deltas [H-1]  out_proj.weight [D, H P]
  in_proj.bias, conv1d.bias, out_proj.bias, norm.weight [H P]  (may be missing)
  options: nheads H, headdim P, d_state N; ngroups G (1), norm_group_size (H P / G), eps (1e-5),
    dt_limit=(min, max), norm_before_gate=1
  out.cache.ssm_state [B,H,P,N]  out.cache.conv_state [B, H P + 2 G N, W]
)"},
    {"gated_deltanet_layer", run_gated_delta_net_layer<double>, run_gated_delta_net_layer<float>,
     R"(  q_proj.weight, k_proj.weight [G K, D]  v_proj.weight [H V, D]  a_proj.weight, b_proj.weight [H, D]
  dt_bias [H]  A_log [H], or A_log_base, A_log_delta [H-1]  o_norm.weight [V]  o_proj.weight [D, H V]
  q_conv1d.weight, k_conv1d.weight [G K, 1, W], v_conv1d.weight [H V, 1, W]  g_proj.weight [H V, D]  (may be
    missing; the convolutions all or none)
  options: num_heads G, num_v_heads H (G), head_k_dim K, head_v_dim V, norm_eps (1e-6), allow_neg_eigval=1
  out.cache.recurrent_state [B,H,K,V]  out.cache.conv_state_q, ..._k, ..._v [B, channels, W]
)"},
    {"gla_layer", run_gla_layer<double>, run_gla_layer<float>,
     R"(  q_proj.weight [H K, D]  k_proj.weight [G K, D]  v_proj.weight [G V, D]  o_proj.weight [D, H V]
  the gate: gk_proj.0.weight [R, D], gk_proj.1.weight [G K, R], gk_proj.1.bias [G K]; or PoST's
    a_proj.weight [G K, D], dt_bias [G K], A_log_base, A_log_delta [H-1]
  convolutions and g_proj.weight as above, g_norm.weight or g_norm_swish_gate.weight [V]  (may be missing)
  options: num_heads H, num_kv_heads G (H), head_k_dim K, head_v_dim V, norm_eps (1e-6),
    gate_logit_normalizer (16), clamp_min
  out.cache.recurrent_state [B,H,K,V]  out.cache.conv_state_q, ..._k, ..._v [B, channels, W]
)"},
    {"retnet_layer", run_retnet_layer<double>, run_retnet_layer<float>,
     R"(  q_proj.weight [H K, D]  k_proj.weight [G K, D]  v_proj.weight [G V, D]  o_proj.weight [D, H V]
  convolutions, g_proj.weight and the norm as above  (may be missing)
  gamma = 1 - 2^(-5-h); rotary embedding of q and k, half-split, base 10000, positions from 0
  options: num_heads H, num_kv_heads G (H), head_k_dim K, head_v_dim V, norm_eps (1e-6)
  out.cache.recurrent_state [B,H,K,V]  out.cache.conv_state_q, ..._k, ..._v [B, channels, W]
)"},
    {"rwkv7_time_mix", run_rwkv7_time_mix<double>, run_rwkv7_time_mix<float>,
     R"(  in.v_first [B,T,D] unless layer_id=0, whose layer gives it (out.v_first)
  the published names: x_r, x_w, x_k, x_v, x_a, x_g, w0, a0, v0, k_k, k_a [D]  r_k [H,K]
  w1, a1, v1, g1 [D, R]  w2, a2, v2, g2 [R, D]  (inputs first; no v0, v1, v2 in layer 0)
  receptance.weight, key.weight, value.weight, output.weight [D, D]  ln_x.weight, ln_x.bias [D]
  options: head_size K, layer_id, ln_x_eps (1e-5 K), kk_eps (0), added to |kk|^2
  out.cache.wkv_state [B,H,V,K]  out.cache.x_prev [B,D]
)"},
    {"rwkv7_time_mix_fla_names", run_rwkv7_time_mix_fla_names<double>, run_rwkv7_time_mix_fla_names<float>,
     R"(  the same with fla's names: r_proj.weight, ..., o_proj.weight, g_norm.weight, g_norm.bias; and
    w_lora, a_lora, v_lora, g_lora as w_lora.lora.0.weight [R, D], w_lora.lora.2.weight [D, R] and
    w_lora.lora.2.bias [D]
  with PoST also w0_base, w0_delta [D-1], added to the bias of w_lora
)"},
    {"rwkv7_channel_mix", run_rwkv7_channel_mix<double>, run_rwkv7_channel_mix<float>,
     R"(  x_k [D]  key.weight [F, D]  value.weight [D, F]
  out.cache.x_prev [B,D]
)"},
    {"koopman_mlp", run_koopman_mlp<double>, run_koopman_mlp<float>,
     R"(  norm.weight, norm.bias [D]  lift.weight [F, D]  gamma, omega [F/2]  readout.weight [D, F]
  gate.weight [F, D]  (may be missing)
  u = silu(W_lift layernorm(x)),  z1 = gamma u1 + omega u2,  z2 = gamma u2 - omega u1 for each pair (u1, u2)
    of neighbours,  z = z sigmoid(W_gate layernorm(x)),  y = x + W_readout z
  options: d D, d_k F, layer_norm_eps (1e-5); spectral_norm_gamma=0 leaves gamma and omega as they are,
    else they are scaled so that gamma^2 + omega^2 is at most 1
  no caches
)"},
    {"ska_layer", run_ska_layer<double>, run_ska_layer<float>,
     R"(  norm.weight, norm.bias [D]  ska.key_proj.weight, ska.query_proj.weight [H r, D]
  ska.value_proj.weight [H P, D]  ska.out_proj.weight [D, H P]  ska.eta, ska.ssn_gamma []
  z, zq, v = W layernorm(x), read as by ska_streaming or ska_chunk,  y = x + W_out (what they retrieve)
  options: n_heads H, rank r, ridge_eps, power_K (2), form whitened or minv, layer_norm_eps (1e-5)
    mode=streaming: inclusive True or False; mode=chunk: chunk_size, norm_scope past or sequence,
    boundary_transition (1)
  out.cache.G, out.cache.M [B,H,r,r]  out.cache.C [B,H,P,r]  out.cache.z_last [B,H,r]  out.cache.max_norm [B,H]
)"},
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
