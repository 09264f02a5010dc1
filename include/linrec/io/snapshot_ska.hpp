// The tensors of SKA's states in snapshots; the format is described in snapshot.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/ska/state.hpp"

namespace linrec::io::detail {

/// One tensor of a state, S sequences.
struct Part {
  std::string suffix;   ///< of its name, behind the name of the state
  const char* letters;  ///< "[S, H, K, V]"
  std::vector<Index> shape;
};

/// The names of what SkaFit::record has, in its order.
inline constexpr const char* ska_record_names[] = {".tokens",          ".max_norm",       ".empty",
                                                   ".factor.status",   ".factor.eps",     ".factor.ridge",
                                                   ".factor.residual", ".factor.updates", ".factor.unread"};

/// A number of a record as it is stored, and back.
template <class Number>
using StoredAs = std::conditional_t<std::is_same_v<Number, double>, double, std::int64_t>;
/// @throws ValueError if no state can have it.
template <class Number>
void set_record(Number& number, StoredAs<Number> stored) {
  constexpr std::int64_t largest = std::is_same_v<Number, bool>           ? 1
                                   : std::is_same_v<Number, FactorStatus> ? 3
                                                                          : std::int64_t{1} << 53;
  if constexpr (std::is_same_v<Number, double>) {
    if (!(stored >= 0)) throw ValueError(message("expected at least 0, got ", stored));
  } else if (stored < 0 || stored > largest) {
    throw ValueError(message("expected 0 to ", largest, ", got ", stored));
  }
  number = static_cast<Number>(stored);
}

/// The tensors of an SkaState, const or not, but for the positions: visitors as those of snapshot_parts.hpp.
template <class S, class F>
class SkaVisitor {
 public:
  SkaVisitor(S& state, F& f)
      : state_(state),
        f_(f),
        heads_(state.shape().heads),
        r_(state.shape().key),
        p_(state.shape().value),
        key_stride_(padded<double>(r_)) {}

  void visit_sums() {
    for_each_kind([this](const std::string& prefix, auto&& fit_of) {
      visit_runs(prefix + ".G", "[S, H, r (r + 1) / 2]", {r_ * (r_ + 1) / 2}, fit_of,
                 [&](auto& fit, auto&& g) { visit_lower(fit.statistics().g(), g); });
      visit_runs(prefix + ".M", "[S, H, r, r]", {r_, r_}, fit_of,
                 [&](auto& fit, auto&& g) { visit_transposed(fit.statistics().m(), r_, key_stride_, g); });
      visit_runs(prefix + ".Cv", "[S, H, P, r]", {p_, r_}, fit_of, [&](auto& fit, auto&& g) {
        visit_transposed(fit.statistics().c(), p_, padded<double>(p_), g);
      });
      visit_runs(prefix + ".last_key", "[S, H, r]", {r_}, fit_of,
                 [&](auto& fit, auto&& g) { g(fit.statistics().last(), r_); });
      visit_runs(prefix + ".first_key", "[S, H, r]", {r_}, fit_of,
                 [&](auto& fit, auto&& g) { g(fit.statistics().first(), r_); });
    });
  }

  void visit_records() {
    for_each_kind([this](const std::string& prefix, auto&& fit_of) {
      visit_runs(prefix + ".factor.W", "[S, H, r (r + 1) / 2]", {r_ * (r_ + 1) / 2}, fit_of,
                 [&](auto& fit, auto&& g) {
                   if (!is_const || fit.factor().ready()) return visit_lower(fit.factor().w(), g);
                   const std::vector<double> zeros(static_cast<std::size_t>(r_));  // it means nothing
                   for (Index i = 0; i < r_; ++i)
                     if constexpr (is_const) g(zeros.data(), i + 1);
                 });
      [&]<std::size_t... i>(std::index_sequence<i...>) { (visit_record<i>(prefix, fit_of), ...); }
      (std::make_index_sequence<std::size(ska_record_names)>());
    });
    const auto failures = [this](Index s, Index h) -> decltype(auto) { return state_.failures(s, h); };
    visit_number(".ska.failures", failures);
  }

 private:
  static constexpr bool is_const = std::is_const_v<S>;
  using Fit = std::conditional_t<is_const, const SkaFit, SkaFit>;

  /// f(prefix, fit_of): of all tokens, and of those of earlier chunks if they are told apart.
  template <class G>
  void for_each_kind(G&& g) {
    const auto now = [this](Index s, Index h) -> Fit& { return state_.now(s, h); };
    const auto past = [this](Index s, Index h) -> Fit& { return state_.past(s, h); };
    g(".ska", now);
    if (state_.shape().chunk > 0) g(".ska.past", past);
  }
  template <class G>
  void for_each_head(G&& g) const {
    for (Index s = 0; s < state_.sequences(); ++s)
      for (Index h = 0; h < heads_; ++h) g(s, h);
  }

  /// A tensor for each head, whose runs are those that runs(fit, g) calls g with.
  template <class FitOf, class Runs>
  void visit_runs(const std::string& name, const char* letters, std::vector<Index> extents, FitOf&& fit_of,
                  Runs&& runs) {
    extents.insert(extents.begin(), {state_.sequences(), heads_});
    f_(Part{name, letters, extents}, std::type_identity<double>(),
       [&](auto&& g) { for_each_head([&](Index s, Index h) { runs(fit_of(s, h), g); }); });
  }
  template <std::size_t i, class FitOf>
  void visit_record(const std::string& prefix, FitOf&& fit_of) {
    const auto number = [&](Index s, Index h) -> auto& { return std::get<i>(fit_of(s, h).record()); };
    visit_number(prefix + ska_record_names[i], number);
  }
  /// A number for each head.
  template <class NumberOf>
  void visit_number(const std::string& name, NumberOf&& number_of) {
    using Number = std::remove_cvref_t<decltype(number_of(0, 0))>;
    f_(Part{name, "[S, H]", {state_.sequences(), heads_}}, std::type_identity<StoredAs<Number>>(),
       [&](auto&& g) {
         for_each_head([&](Index s, Index h) {
           auto&& number = number_of(s, h);
           auto stored = static_cast<StoredAs<Number>>(number);
           g(&stored, 1);
           if constexpr (!is_const) try {
               set_record(number, stored);
             } catch (const ValueError& error) {
               throw ValueError(message("sequence ", s, ", head ", h, ": ", error.what()));
             }
         });
       });
  }

  /// The lower triangle of a matrix [r, r]; beyond it becomes 0.
  template <class Number, class G>
  void visit_lower(Number* m, G&& g) const {
    for (Index i = 0; i < r_; ++i) {
      Number* const row = m + i * key_stride_;
      if constexpr (!is_const) std::fill(row + i + 1, row + key_stride_, 0.0);
      g(row, i + 1);
    }
  }
  /// A matrix [rows, r] that lies transposed.
  template <class Number, class G>
  void visit_transposed(Number* m, Index rows, Index stride, G&& g) const {
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < r_; ++j) g(m + j * stride + i, 1);
  }

  S& state_;
  F& f_;
  Index heads_, r_, p_, key_stride_;
};

template <class S, class F>
void visit_ska_sums(S& state, F& f) {
  SkaVisitor<S, F>(state, f).visit_sums();
}
template <class S, class F>
void visit_ska_records(S& state, F& f) {
  SkaVisitor<S, F>(state, f).visit_records();
}

}  // namespace linrec::io::detail
