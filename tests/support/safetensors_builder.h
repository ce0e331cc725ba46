// Writes safetensors files and files of any bytes, by hand, so that tests can make them wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace k3::test {

// Little-endian 8-byte header length, the header, then `data`.
std::string safetensors_bytes(std::string_view header, std::string_view data);

void write_file(const std::filesystem::path& path, std::string_view bytes);

std::string read_file(const std::filesystem::path& path);

// Collects tensors one after the other and writes a valid file of them.
class SafetensorsBuilder {
 public:
  // Adds a tensor with these bytes; the shape is JSON text such as "[2,3]". Names go into the
  // header as they are, escapes included.
  SafetensorsBuilder& add(std::string_view name,
                          std::string_view dtype,
                          std::string_view shape,
                          std::string_view data);

  // Adds header text of any kind: "\"__metadata__\":{}".
  SafetensorsBuilder& add_raw(std::string_view member);

  // Leaves `bytes` unused before the next tensor.
  SafetensorsBuilder& gap(std::size_t bytes);

  [[nodiscard]] std::string header() const { return "{" + members_ + "}"; }

  [[nodiscard]] std::string bytes() const { return safetensors_bytes(header(), data_); }

  void write(const std::filesystem::path& path) const { write_file(path, bytes()); }

 private:
  std::string members_;
  std::string data_;
};

}  // namespace k3::test
