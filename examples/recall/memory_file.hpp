// An associative memory as a file: the snapshot of its state, and what the state is not.
//
//   snapshot   U8 [n]         of linrec/io/snapshot.hpp, with a checksum of its own
//   options    I64 [5]        rank, value_dim, power, kind of keys, seed
//   ridge      F64 [1]
//   lengths    I64 [V]        of the values' texts
//   values     U8 [sum]       the texts, one behind the other
//   checksum   I64 [1]        of the options and the texts
//
// a safetensors file with the metadata linrec.recall "1", the version.
#pragma once

#include <filesystem>

#include "memory.hpp"

namespace recall {

/// Writes the file, or leaves an old one as it was.
/// @throws linrec::Error, naming the path and the reason, if that fails.
void save_memory(const std::filesystem::path& path, const AssociativeMemory& memory);

/// @throws linrec::FormatError, naming the file and the reason, if it cannot be read, is damaged or something
/// else.
AssociativeMemory load_memory(const std::filesystem::path& path);

}  // namespace recall
