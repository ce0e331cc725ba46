#include "support/safetensors_file.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "io/file.h"
#include "io/safetensors_header.h"

namespace k3::test {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("fixture " + path.string() + " is missing");
  }
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  const auto file = io::open_file(io::posix_file_system(), path, ErrorKind::kIo);
  io::SafetensorsHeader header;
  for (const io::HeaderTensor& tensor : header.read(*file)) {
    tensors_[std::string(tensor.name)] = {std::string(tensor.dtype_text),
                                          {tensor.shape.begin(), tensor.shape.end()},
                                          content.substr(static_cast<std::size_t>(tensor.offset),
                                                         static_cast<std::size_t>(tensor.nbytes))};
  }
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    names.push_back(name);
  }
  return names;
}

std::vector<std::uint64_t> SafetensorsFile::shape(const std::string& name) const {
  return tensors_.at(name).shape;
}

template <typename T>
std::vector<T> SafetensorsFile::values(const std::string& name, const std::string& dtype) const {
  const Tensor& tensor = tensors_.at(name);
  if (tensor.dtype != dtype) {
    throw std::runtime_error(name + " is " + tensor.dtype + ", not " + dtype);
  }
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
  return values;
}

std::vector<float> SafetensorsFile::floats(const std::string& name) const {
  return values<float>(name, "F32");
}

std::vector<double> SafetensorsFile::doubles(const std::string& name) const {
  return values<double>(name, "F64");
}

std::vector<std::int32_t> SafetensorsFile::integers(const std::string& name) const {
  return values<std::int32_t>(name, "I32");
}

std::vector<std::uint16_t> SafetensorsFile::halves(const std::string& name) const {
  return values<std::uint16_t>(name, "BF16");
}

std::vector<std::uint8_t> SafetensorsFile::bytes(const std::string& name) const {
  return values<std::uint8_t>(name, "U8");
}

float SafetensorsFile::scalar(const std::string& name) const {
  return floats(name).at(0);
}

}  // namespace k3::test
