#include "open_model.hpp"

namespace linrec::verify {

template std::unique_ptr<const ModelFile> open_model<double>(const std::filesystem::path&);

}  // namespace linrec::verify
