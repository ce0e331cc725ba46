#include "support/safetensors_builder.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace k3::test {

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>((std::uint64_t{header.size()} >> shift) & 0xffU);
  }
  return bytes.append(header).append(data);
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read " + path.string());
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

SafetensorsBuilder& SafetensorsBuilder::add(std::string_view name,
                                            std::string_view dtype,
                                            std::string_view shape,
                                            std::string_view data) {
  const std::size_t begin = data_.size();
  data_.append(data);
  std::string member;
  member.append("\"").append(name).append("\":{\"dtype\":\"").append(dtype);
  member.append("\",\"shape\":").append(shape).append(",\"data_offsets\":[");
  member += std::to_string(begin) + "," + std::to_string(data_.size()) + "]}";
  return add_raw(member);
}

SafetensorsBuilder& SafetensorsBuilder::add_raw(std::string_view member) {
  members_.append(members_.empty() ? "" : ",").append(member);
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::gap(std::size_t bytes) {
  data_.append(bytes, '\x5a');
  return *this;
}

}  // namespace k3::test
