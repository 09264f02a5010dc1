# Makes the target Eigen3::Eigen from any Eigen 3.4 or 5. Eigen's version file accepts one major
# version only and refuses a range over two, hence one question after the other.
foreach(linrec_eigen_version IN ITEMS 3.4...<6 3.4 5)
  if(NOT TARGET Eigen3::Eigen)
    find_package(Eigen3 ${linrec_eigen_version} QUIET)
  endif()
endforeach()
unset(linrec_eigen_version)
