// Weights of bfloat16: where they lie, and that models compute the same with them as with numbers of the same
// values.
#include "linrec/io/weight_reader.hpp"
#include "tests/catch.hpp"
#include "tests/models/branches.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test::weight_storage_test {

namespace {

using io::DataType;
using io::WeightStorage;

/// The logits of a sequence by prefill; and by steps, which must have the same bits.
template <class Scalar>
std::vector<double> logits_of(const LanguageModel<Scalar>& model) {
  const auto tokens = random_tokens(12, model.vocabulary());
  auto state = model.initial_state(), stepped = state;
  const auto logits = model.prefill(tokens, state);
  for (Index t = 0; t < logits.rows(); ++t)
    CHECK(model.step(std::span(tokens).subspan(static_cast<std::size_t>(t), 1), stepped) == logits.row(t));
  CHECK(state == stepped);
  return {logits.data(), logits.data() + logits.size()};
}
template <class Scalar>
std::vector<double> logits_of(const io::Checkpoint& checkpoint, WeightStorage storage) {
  return logits_of(load<Scalar>(checkpoint, storage));
}

/// The files with all numbers rounded to bfloat16.
Files rounded(Files files) {
  for (auto& [name, numbers] : files.tensors)
    for (float& x : numbers.values) x = BFloat16(x).value();
  return files;
}

bool lies_in(const void* address, const io::Tensor& tensor) { return address == tensor.bytes.data(); }

}  // namespace

TEST_CASE("weights: of every model, bfloat16 computes what numbers of the same values do") {
  for (const Recipe& recipe : all_recipes()) {
    INFO(recipe.name);
    const io::Checkpoint wide = as_checkpoint(rounded(recipe.files)),
                         narrow = as_checkpoint(recipe.files, DataType::BF16);
    const auto right = logits_of<double>(wide, WeightStorage::widened);
    CHECK(relative_error(logits_of<double>(narrow, WeightStorage::as_stored), right) < 1e-11);
    const auto single = logits_of<float>(narrow, WeightStorage::as_stored);
    CHECK(relative_error(single, logits_of<float>(narrow, WeightStorage::widened)) < 1e-3);
    // The same weights, however they have come about
    CHECK(logits_of<float>(narrow, WeightStorage::bfloat16) == single);
    CHECK(logits_of<float>(wide, WeightStorage::bfloat16) == single);
    CHECK(logits_of<float>(wide, WeightStorage::as_stored) == logits_of<float>(wide, WeightStorage::widened));
  }
}

TEST_CASE("weights: bfloat16 is used in place, and the rest is widened") {
  const Files& files = recipe("fla gla").files;
  const std::string matrix = "model.embeddings.weight", norm = "model.norm.weight";
  std::optional<Parameter<float>> parameter;
  {
    const io::Checkpoint narrow = as_checkpoint(files, DataType::BF16);
    for (const WeightStorage storage : {WeightStorage::as_stored, WeightStorage::bfloat16}) {
      io::WeightReader<float> reader(narrow, storage);
      parameter = reader.matrix(matrix, {24, 32});
      CHECK(lies_in(parameter->bfloat16_data(), narrow.tensor(matrix)));
      CHECK_FALSE(reader.get(norm, {32}).is_bfloat16());
    }
    io::WeightReader<float> widened(narrow);
    CHECK_FALSE(widened.matrix(matrix, {24, 32}).is_bfloat16());
    CHECK(widened.matrix(matrix, {24, 32}).to_double().isApprox(parameter->to_double(), 0));
  }
  CHECK(parameter->bfloat16_data()[33].bits == float_to_bfloat16(files[matrix].values[33]));

  const io::Checkpoint wide = as_checkpoint(files);
  io::WeightReader<float> as_stored(wide, WeightStorage::as_stored);
  CHECK(lies_in(as_stored.matrix(matrix, {24, 32}).data(), wide.tensor(matrix)));
  for (const DataType type : {DataType::F64, DataType::F32, DataType::F16}) {
    const io::Checkpoint other = as_checkpoint(rounded(files), type);
    io::WeightReader<double> reader(other, WeightStorage::bfloat16);
    const Parameter<double> copy = reader.matrix(matrix, {24, 32});
    CHECK(copy.is_bfloat16());
    if (type != DataType::F16)
      CHECK(copy.to_double().cast<float>().isApprox(
          Eigen::Map<const Eigen::ArrayXf>(rounded(files)[matrix].values.data(), 24 * 32), 0));
  }
}

TEST_CASE("weights: matrices of bfloat16 that a project stores transposed, or at an odd address") {
  Files files;
  files.tensors["p.w1"] = {{2, 3}, {1, 2, 3, 4, 5, 6}};
  const Bytes file = model_bytes(files, DataType::BF16);
  const io::NameEntry entries[] = {{"down.weight", "w1", true}};
  for (std::size_t spaces = 0; spaces < 4; ++spaces) {
    const io::Checkpoint checkpoint(io::SafetensorsFile::from_bytes(shifted(file, spaces), "m"), "m");
    io::WeightReader<float> reader(checkpoint, WeightStorage::as_stored);
    const Parameter<float> transposed = reader.matrix({"p.", entries}, "down.weight", {3, 2});
    CHECK(transposed.is_bfloat16());
    CHECK((transposed.to_double() == Eigen::ArrayXd{{1, 4, 2, 5, 3, 6}}).all());
    const Parameter<float> plain = reader.matrix("p.w1", {2, 3});
    CHECK(plain.is_bfloat16());
    CHECK((plain.to_double() == Eigen::ArrayXd::LinSpaced(6, 1, 6)).all());
  }
}

TEST_CASE("weights: a head and an embedding of two types are tied if their values are") {
  Files files = rounded(recipe("fla gla").files);
  const std::string embedding = "model.embeddings.weight", head = "lm_head.weight";
  files = with_key(files, "tie_word_embeddings", true);
  files.tensors[head] = files[embedding];
  const auto text_of = [&](float change) {
    io::SafetensorsWriter writer;
    for (const auto& [name, numbers] : files.tensors) {
      std::vector<float> values = numbers.values;
      if (name == head) values[7] += change;
      writer.add(name, numbers.shape, values, name == head ? DataType::BF16 : DataType::F32);
    }
    const TemporaryDirectory folder;
    write_files(files, folder.path());
    writer.write(folder / "model.safetensors");
    const io::Checkpoint checkpoint(folder.path());
    std::string text;
    for (const WeightStorage storage :
         {WeightStorage::widened, WeightStorage::as_stored, WeightStorage::bfloat16})
      text += error_text<FormatError>([&] { load<float>(checkpoint, storage); }) + ";";
    return text;
  };
  CHECK(text_of(0) == "(nothing was thrown);(nothing was thrown);(nothing was thrown);");
  const std::string refused = text_of(1);
  CHECK_THAT(refused, contains("the config ties 'model.embeddings.weight' and 'lm_head.weight'"));
  CHECK_THAT(refused, !contains("nothing"));
}

}  // namespace linrec::test::weight_storage_test
