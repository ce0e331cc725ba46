// One safetensors file of a fixture, read whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace k3::test {

class SafetensorsFile {
 public:
  // Throws std::runtime_error when it is not there, Error when it is broken.
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }

  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<std::uint64_t> shape(const std::string& name) const;

  // Values of an F32, F64, I32, BF16 or U8 tensor; std::out_of_range when it is not there, and
  // std::runtime_error when it is of another type.
  [[nodiscard]] std::vector<float> floats(const std::string& name) const;
  [[nodiscard]] std::vector<double> doubles(const std::string& name) const;
  [[nodiscard]] std::vector<std::int32_t> integers(const std::string& name) const;
  [[nodiscard]] std::vector<std::uint16_t> halves(const std::string& name) const;  // BF16 bits
  [[nodiscard]] std::vector<std::uint8_t> bytes(const std::string& name) const;

  // The only value of an F32 tensor [1].
  [[nodiscard]] float scalar(const std::string& name) const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::string bytes;
  };

  template <typename T>
  [[nodiscard]] std::vector<T> values(const std::string& name, const std::string& dtype) const;

  std::map<std::string, Tensor> tensors_;
};

}  // namespace k3::test
