// The options of linrec-verify, and the parts of it that need no file.
#include <limits>
#include <set>

#include "examples/verify/relative_error.hpp"
#include "examples/verify/splits.hpp"
#include "tests/catch.hpp"
#include "tool.hpp"

using namespace linrec::test;
using linrec::Index;
using linrec::verify::absolute_error;
using linrec::verify::first_tokens;
using linrec::verify::for_each_call;
using linrec::verify::Piece;
using linrec::verify::relative_error;
using linrec::verify::splits_of;
using linrec::verify::Way;

TEST_CASE("verify: a wrong command line") {
  for (const std::string arguments :
       {"", "--way", "--way=sideways", "--scalar=half", "--seed=x", "--tolerance-float=-1",
        "--tolerance-double=a", "--nonsense", "--model=x", "--expected=x"}) {
    const ToolRun run = run_tool(arguments + (arguments.empty() ? "" : quoted(golden("gla_T1"))));
    CAPTURE(arguments, run.output);
    CHECK(run.status == 2);
    CHECK(run.has("--help"));
    CHECK_FALSE(run.has(" ok"));
  }
  CHECK(run_tool("").has("FILE is required"));
  CHECK(run_tool("--model x").has("--model requires --expected"));
  CHECK(run_tool("--expected x").has("--expected requires --model"));
  CHECK(run_tool("--model x").status == 2);
}

TEST_CASE("verify: the help describes the files") {
  const ToolRun run = run_tool("--help");
  CHECK(run.status == 0);
  for (const char* text : {"\nmamba2_ssd\n",
                           "\nretention\n",
                           "\ngla\n",
                           "\ngated_delta_rule\n",
                           "\nrwkv7\n",
                           "\npost_map\n",
                           "\npost_init\n",
                           "\nmamba2_layer\n",
                           "\ngated_deltanet_layer\n",
                           "\ngla_layer\n",
                           "\nretnet_layer\n",
                           "\nrwkv7_time_mix\n",
                           "\nrwkv7_time_mix_fla_names\n",
                           "\nrwkv7_channel_mix\n",
                           "\nkoopman_mlp\n",
                           "cache_mid.NAME",
                           "cache_mid_after",
                           "NAME.token_ids",
                           "NAME.state.wkv",
                           "--model FILE|DIR --expected FILE",
                           "1e-9",
                           "in.NAME",
                           "out.NAME",
                           "f32.NAME",
                           "position_offset",
                           "[B,H,P,N]",
                           "[B,H,K,V]",
                           "[B,H,V,K]",
                           "save_file",
                           "__metadata__",
                           "1e-11",
                           "2e-6",
                           "2^-24",
                           "--tolerance-float",
                           "--tolerance-double",
                           "--seed",
                           "--quiet",
                           "Exit status"}) {
    CAPTURE(text);
    CHECK(run.has(text));
  }
}

TEST_CASE("verify: chosen scalars and ways") {
  const std::string files = quoted(golden("gla_T1")) + quoted(golden("post_fixed_N5"));
  const auto rows = [&](const std::string& arguments) { return run_tool(arguments + files).count("ok"); };
  CHECK(rows("") == 8);
  CHECK(rows("--scalar float") == 4);
  CHECK(rows("--way steps") == 4);
  CHECK(rows("--way steps,splits") == 6);
  CHECK(rows("--way steps --way prefill --scalar double") == 3);
  const ToolRun run = run_tool("--way prefill --scalar double" + files);
  CHECK(run.has("gla_T1         double  prefill  ok "));
  CHECK(run.has("post_fixed_N5  double  map      ok "));
}

TEST_CASE("verify: chosen bars") {
  const std::string file = quoted(golden("gla_T130"));
  CHECK(run_tool("--tolerance-double 1e-30" + file).count("FAIL") == 3);
  CHECK(run_tool("--tolerance-float 1e-12" + file).count("FAIL") == 3);
  const ToolRun run = run_tool("--tolerance-double 1e-3 --tolerance-float 1e-2" + file);
  CHECK(run.count("ok") == 6);
  CHECK(run.has("<= 1.0e-03"));
  CHECK(run.has("<= 1.0e-02"));
}

TEST_CASE("verify: quiet") {
  const std::string files = quoted(golden("gla_T1")) + quoted(golden("gdn_T1"));
  const ToolRun run = run_tool("--quiet" + files);
  CHECK(run.status == 0);
  CHECK(run.lines().size() == 3);  // the largest errors of the two scalars, and the counts
  CHECK(run.lines().back() == "2 files: 12 ok, 0 FAIL, 0 unknown, 0 error");
  const ToolRun failing = run_tool("--quiet --tolerance-float 0 --way steps" + files);
  CHECK(failing.status == 1);
  CHECK(failing.count("FAIL") == 2);
  CHECK(failing.count("ok") == 0);
}

TEST_CASE("verify: the same seed prints the same table") {
  const std::string file = quoted(golden("rwkv7_long_T700"));
  CHECK(run_tool("--seed 7" + file).output == run_tool("--seed 7" + file).output);
  CHECK(run_tool("--seed 8" + file).status == 0);
}

TEST_CASE("verify: splits cover the sequence, and come of the seed alone") {
  const auto flat = [](std::uint64_t seed) {
    std::vector<Index> numbers;
    for (const auto& split : splits_of(Way::splits, 700, seed))
      for (const Piece& piece : split) numbers.push_back(piece.prefill ? piece.tokens : -piece.tokens);
    return numbers;
  };
  CHECK(flat(1) == flat(1));
  CHECK(flat(1) != flat(2));
  for (const Index tokens : {0, 1, 2, 33, 700})
    for (const auto& split : splits_of(Way::splits, tokens, 3)) {
      Index sum = 0;
      for (const Piece& piece : split) sum += piece.tokens;
      CHECK(sum == tokens);
    }
  bool steps = false, prefills = false, single = false, empty = false, longer_than_a_block = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const Index tokens : flat(seed)) {
      steps = steps || tokens < 0;
      prefills = prefills || tokens > 1;
      single = single || tokens == 1;
      empty = empty || tokens == 0;
      longer_than_a_block = longer_than_a_block || tokens > 32;
    }
  CHECK((steps && prefills && single && empty && longer_than_a_block));
  REQUIRE(splits_of(Way::steps, 9, 1).size() == 1);
  CHECK_FALSE(splits_of(Way::steps, 9, 1)[0][0].prefill);
  CHECK(splits_of(Way::prefill, 9, 1)[0][0].prefill);
}

TEST_CASE("verify: a part of a split, and what it calls") {
  const linrec::verify::Split split{{2, true}, {0, true}, {3, false}, {4, true}};
  const auto calls = [](const linrec::verify::Split& of) {
    std::string text;
    for_each_call(
        of, [&](Index first, Index n) { text += " p" + std::to_string(first) + "+" + std::to_string(n); },
        [&](Index t) { text += " s" + std::to_string(t); });
    return text;
  };
  CHECK(calls(split) == " p0+2 p2+0 s2 s3 s4 p5+4");
  CHECK(calls(first_tokens(split, 9)) == calls(split));
  CHECK(calls(first_tokens(split, 6)) == " p0+2 p2+0 s2 s3 s4 p5+1");
  CHECK(calls(first_tokens(split, 4)) == " p0+2 p2+0 s2 s3 p4+0");
  CHECK(calls(first_tokens(split, 0)) == " p0+0 p0+0 p0+0");
}

TEST_CASE("verify: the absolute error") {
  using Numbers = std::vector<double>;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  CHECK(absolute_error(Numbers{1, 2, -3}, Numbers{1, 2, -4}) == 1);
  CHECK(absolute_error(Numbers{}, Numbers{}) == 0);
  CHECK(absolute_error(Numbers{nan, 1}, Numbers{2, 1}) == inf);
  CHECK(absolute_error(Numbers{nan, 1}, Numbers{nan, 3}) == 2);
  CHECK(absolute_error(Numbers{inf, 1}, Numbers{inf, 1}) == 0);
}

TEST_CASE("verify: the relative error") {
  using Numbers = std::vector<double>;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  CHECK(relative_error(Numbers{1, 2, -4}, Numbers{1, 2, -4}) == 0);
  CHECK(relative_error(Numbers{1.5, 2, -4}, Numbers{1, 2, -4}) == 0.125);
  CHECK(relative_error(Numbers{1, 2, -3}, Numbers{1, 2, -4}) == 0.25);
  CHECK(relative_error(Numbers{0.25, 0}, Numbers{0, 0}) == 0.25);
  CHECK(relative_error(Numbers{}, Numbers{}) == 0);
  CHECK(relative_error(Numbers{nan, 1}, Numbers{2, 1}) == inf);
  CHECK(relative_error(Numbers{1, nan}, Numbers{2, 1}) == inf);
  CHECK(relative_error(Numbers{2, 1}, Numbers{nan, 1}) == inf);
  CHECK(relative_error(Numbers{nan, 1}, Numbers{nan, 1}) == 0);
  CHECK(relative_error(Numbers{inf, 1}, Numbers{inf, 2}) == 0.5);
  CHECK(relative_error(Numbers{-inf, 1}, Numbers{inf, 2}) == inf);
  CHECK(relative_error(Numbers{5, 1}, Numbers{inf, 2}) == inf);
}
