// The loop: read a prompt, then draw a token, hand it out, and feed it back.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "linrec/core/workspace.hpp"
#include "linrec/models/language_model.hpp"
#include "sampling.hpp"

namespace generate {

using Model = linrec::LanguageModel<float>;

struct Phase {
  Index tokens = 0;  ///< that the model has read
  double seconds = 0;

  double rate() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// One sequence, as far as it has come.
class Generator {
 public:
  /// @param choices draws come from the first so many tokens of the vocabulary.
  Generator(const Model& model, Model::State state, Sampler sampler, Index choices)
      : model_(model), state_(std::move(state)), sampler_(std::move(sampler)), choices_(choices) {
    logits_.resize(static_cast<std::size_t>(model.vocabulary()));
  }

  /// Feeds `tokens`, then calls emit(token) with `length` tokens as they are drawn. The last token - of those
  /// drawn, or else of `tokens` - is not fed: it is where the next run begins, and last_token() gives it.
  /// @param tokens at least one.
  /// @throws linrec::ValueError if a token or a logit is bad.
  template <class Emit>
  void run(std::vector<TokenId> tokens, Index length, Emit&& emit) {
    last_ = tokens.back();
    if (length == 0) tokens.pop_back();
    const Stopwatch prefill_watch;
    if (!tokens.empty()) model_.prefill_last(tokens, state_, logits(), {.workspace = &workspace_});
    prefill_ = {static_cast<Index>(tokens.size()), prefill_watch.seconds()};

    const Stopwatch decode_watch;
    for (Index i = 0; i < length; ++i) {
      if (i > 0) model_.step({&last_, 1}, state_, logits());
      last_ = sampler_.next(std::span<const float>(logits_).first(static_cast<std::size_t>(choices_)));
      emit(last_);
    }
    decode_ = {length > 0 ? length - 1 : 0, decode_watch.seconds()};
  }

  const Model::State& state() const { return state_; }
  const Sampler& sampler() const { return sampler_; }
  TokenId last_token() const { return last_; }
  const Phase& prefill() const { return prefill_; }
  const Phase& decode() const { return decode_; }

 private:
  linrec::TokenView<float> logits() { return {logits_.data(), 1, 1, 1, model_.vocabulary()}; }

  const Model& model_;
  Model::State state_;
  Sampler sampler_;
  Index choices_;
  linrec::Workspace workspace_;
  std::vector<float> logits_;  // [V]
  TokenId last_ = 0;
  Phase prefill_, decode_;
};

}  // namespace generate
