#include "open_model.hpp"

namespace linrec::verify {

template std::unique_ptr<const ModelFile> open_model<float>(const std::filesystem::path&);

}  // namespace linrec::verify
