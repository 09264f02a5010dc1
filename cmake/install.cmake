# Headers, the CMake package and linrec.pc. Nothing in them depends on the machine or on where the
# files were installed.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(linrec_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/linrec")
set(linrec_pkgconfig_dir "${CMAKE_INSTALL_DATADIR}/pkgconfig")

install(DIRECTORY include/linrec DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")

target_include_directories(linrec INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(TARGETS linrec EXPORT linrecTargets)
install(EXPORT linrecTargets NAMESPACE linrec:: DESTINATION "${linrec_package_dir}")

configure_package_config_file(cmake/linrecConfig.cmake.in "${PROJECT_BINARY_DIR}/linrecConfig.cmake"
                              INSTALL_DESTINATION "${linrec_package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/linrecConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/linrecConfig.cmake" "${PROJECT_BINARY_DIR}/linrecConfigVersion.cmake"
              cmake/linrecFindEigen.cmake cmake/linrecFindComponent.cmake
        DESTINATION "${linrec_package_dir}")

# linrec.pc finds the headers relative to itself.
file(RELATIVE_PATH linrec_pc_prefix "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
file(RELATIVE_PATH linrec_pc_include "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig"
     "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
configure_file(cmake/linrec.pc.in "${PROJECT_BINARY_DIR}/linrec.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/linrec.pc" DESTINATION "${linrec_pkgconfig_dir}")
