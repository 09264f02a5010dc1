// Catch2, the distributions' version 2 or upstream's version 3, with the names that differ made equal:
// `Approx`, and the matchers `contains(text)` for strings and `message_contains(text)` for exceptions:
//   REQUIRE_THROWS_MATCHES(call(), linrec::ShapeError, message_contains("expected [1, 2]"));
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <exception>
#include <string>
#include <utility>

namespace linrec::test {

#if __has_include(<catch2/catch_all.hpp>)
template <class T>
using Matcher = Catch::Matchers::MatcherBase<T>;
inline auto contains(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#else
template <class T>
using Matcher = Catch::MatcherBase<T>;
inline auto contains(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif

class MessageContains : public Matcher<std::exception> {
 public:
  explicit MessageContains(std::string text) : text_(std::move(text)) {}
  bool match(const std::exception& error) const override {
    return std::string(error.what()).find(text_) != std::string::npos;
  }
  std::string describe() const override { return "has a message that contains \"" + text_ + '"'; }

 private:
  std::string text_;
};

inline MessageContains message_contains(const std::string& text) { return MessageContains(text); }

}  // namespace linrec::test
using linrec::test::contains;
using linrec::test::message_contains;
