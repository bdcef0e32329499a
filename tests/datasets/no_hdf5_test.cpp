#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "datasets/bert_hdf5.h"

namespace hetu {
namespace {

TEST(NoHdf5, SaysHowToGetIt) {
  const auto folder = std::filesystem::temp_directory_path() / "hetu_no_hdf5_test";
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "training.hdf5") << "x";
  try {
    bert_hdf5_source({folder.string()});
    ADD_FAILURE() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Unsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("-DHETU_HDF5=ON"));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hetu
