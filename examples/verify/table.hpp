// The table that the tool prints.
#pragma once

#include <iosfwd>
#include <map>
#include <string>

#include "verify.hpp"

namespace linrec::verify {

class Table {
 public:
  /// @param quiet only rows that are not ok, and the summary.
  Table(std::ostream& out, std::size_t name_width, bool quiet);

  void add(const std::string& name, const Row& row);
  /// The largest error / bar of each scalar, and the counts.
  void print_summary(std::size_t files) const;
  /// Whether something ran, and all of it was ok.
  bool all_ok() const;

 private:
  struct Worst {
    double ratio = -1;
    std::string where;
  };

  std::size_t count(Verdict verdict) const;
  void print(const std::string& name, const std::string& scalar, const std::string& way,
             const std::string& result, const std::string& details);

  std::ostream& out_;
  std::size_t name_width_;
  bool quiet_, header_printed_ = false;
  std::map<Verdict, std::size_t> counts_;
  std::map<std::string, Worst> worst_;  // by scalar
};

}  // namespace linrec::verify
