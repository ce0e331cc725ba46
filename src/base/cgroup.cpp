#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace k3 {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::ranges::find(list, value) != list.end();
}

// A mounted hierarchy: which part of it is mounted where.
struct Mount {
  fs::path point;
  fs::path shown;  // the group at the mount point
};

// The mount of a controller: version 1 names it among its options, version 2 has all controllers.
std::optional<Mount> find_mount(const std::string& controller,
                                bool version2,
                                const fs::path& root) {
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    // id parent major:minor shown point options [optional...] - type source super-options
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) {
      continue;
    }
    const std::vector<std::string> left = split(line.substr(0, dash), ' ');
    const std::vector<std::string> right = split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) {
      continue;
    }
    const bool matches = version2
                             ? right[0] == "cgroup2"
                             : right[0] == "cgroup" && contains(split(right[2], ','), controller);
    if (matches) {
      return Mount{root / fs::path(left[4]).relative_path(), left[3]};
    }
  }
  return std::nullopt;
}

// The group of this process: the line of the controller, else that of version 2 ("0::").
std::optional<std::string> find_group(const std::string& controller,
                                      bool version2,
                                      const fs::path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool matches =
        version2 ? controllers.empty() : contains(split(controllers, ','), controller);
    if (matches) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

std::vector<fs::path> directories_of(const std::string& controller,
                                     bool version2,
                                     const fs::path& root) {
  const std::optional<Mount> mount = find_mount(controller, version2, root);
  const std::optional<std::string> group = find_group(controller, version2, root);
  if (!mount || !group) {
    return {};
  }
  // Inside a container the mount shows only a part of the hierarchy.
  fs::path relative = fs::path(*group).lexically_relative(mount->shown);
  if (relative.empty() || *relative.begin() == "..") {
    relative = ".";
  }
  std::vector<fs::path> directories = {mount->point};
  for (const fs::path& part : relative.lexically_normal()) {
    if (part != "." && !part.empty()) {
      directories.push_back(directories.back() / part);
    }
  }
  std::ranges::reverse(directories);
  return directories;
}

// The words of a file; none when it cannot be read.
std::vector<std::string> read_words(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> words;
  for (std::string word; in >> word;) {
    words.push_back(word);
  }
  return words;
}

std::optional<double> ratio(const std::string& quota, const std::string& period) {
  // "max" and -1 mean no quota.
  const double q = std::strtod(quota.c_str(), nullptr);
  const double p = std::strtod(period.c_str(), nullptr);
  return q > 0.0 && p > 0.0 ? std::optional(q / p) : std::nullopt;
}

std::optional<double> quota_of(const fs::path& directory) {
  const std::vector<std::string> version2 = read_words(directory / "cpu.max");
  if (version2.size() == 2) {
    return ratio(version2[0], version2[1]);
  }
  const std::vector<std::string> quota = read_words(directory / "cpu.cfs_quota_us");
  const std::vector<std::string> period = read_words(directory / "cpu.cfs_period_us");
  return quota.empty() || period.empty() ? std::nullopt : ratio(quota[0], period[0]);
}

// The number that is all of the file; nothing for "max", other text or no file.
std::optional<std::uint64_t> read_number(const fs::path& path) {
  const std::vector<std::string> words = read_words(path);
  if (words.size() != 1) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  const char* const end = words[0].data() + words[0].size();
  const auto [stop, error] = std::from_chars(words[0].data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// The value of a key in a file of "key value" lines.
std::optional<std::uint64_t> read_entry(const fs::path& path, const std::string& wanted) {
  std::ifstream in(path);
  std::string key;
  std::uint64_t value = 0;
  while (in >> key >> value) {
    if (key == wanted) {
      return value;
    }
  }
  return std::nullopt;
}

// The lower of two limits. Version 1 says "no limit" with the largest number of whole pages, which
// depends on the page size; no machine has 2^62 bytes.
std::optional<std::uint64_t> lower_limit(std::optional<std::uint64_t> a,
                                         std::optional<std::uint64_t> b) {
  constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62U;
  const std::uint64_t least = std::min(a.value_or(kUnlimited), b.value_or(kUnlimited));
  return least < kUnlimited ? std::optional(least) : std::nullopt;
}

std::optional<MemoryLimit> memory_limit_version2(const fs::path& directory) {
  const std::optional<std::uint64_t> limit =
      lower_limit(read_number(directory / "memory.max"), read_number(directory / "memory.high"));
  if (!limit) {
    return std::nullopt;
  }
  const fs::path stat = directory / "memory.stat";
  return MemoryLimit{.limit = *limit,
                     .used = read_number(directory / "memory.current").value_or(0),
                     .reclaimable = read_entry(stat, "inactive_file").value_or(0) +
                                    read_entry(stat, "active_file").value_or(0)};
}

std::optional<MemoryLimit> memory_limit_version1(const fs::path& directory) {
  const fs::path stat = directory / "memory.stat";
  const std::optional<std::uint64_t> limit =
      lower_limit(read_number(directory / "memory.limit_in_bytes"),
                  read_entry(stat, "hierarchical_memory_limit"));
  if (!limit) {
    return std::nullopt;
  }
  return MemoryLimit{.limit = *limit,
                     .used = read_number(directory / "memory.usage_in_bytes").value_or(0),
                     .reclaimable = read_entry(stat, "total_inactive_file").value_or(0) +
                                    read_entry(stat, "total_active_file").value_or(0)};
}

// The groups that the memory of this process is charged to, its own first. Version 1 charges a
// group above only where it counts its children ("hierarchical"; always so since Linux 5.11).
std::vector<fs::path> charged_directories(const fs::path& root) {
  std::vector<fs::path> directories = cgroup_directories("memory", root);
  for (std::size_t i = 1; i < directories.size(); ++i) {
    if (read_number(directories[i] / "memory.use_hierarchy") == 0U) {
      directories.resize(i);
    }
  }
  return directories;
}

}  // namespace

std::vector<fs::path> cgroup_directories(const std::string& controller, const fs::path& root) {
  std::vector<fs::path> directories = directories_of(controller, /*version2=*/false, root);
  return directories.empty() ? directories_of(controller, /*version2=*/true, root) : directories;
}

std::optional<double> cgroup_cpu_quota(const fs::path& root) {
  std::optional<double> least;
  for (const fs::path& directory : cgroup_directories("cpu", root)) {
    const std::optional<double> quota = quota_of(directory);
    if (quota && (!least || *quota < *least)) {
      least = quota;
    }
  }
  return least;
}

std::uint64_t MemoryLimit::available() const {
  const std::uint64_t held = used - std::min(used, reclaimable);
  return limit - std::min(limit, held);
}

std::vector<MemoryLimit> cgroup_memory_limits(const fs::path& root) {
  std::vector<MemoryLimit> limits;
  for (const fs::path& directory : charged_directories(root)) {
    std::optional<MemoryLimit> limit = memory_limit_version2(directory);
    if (!limit) {
      limit = memory_limit_version1(directory);
    }
    if (limit) {
      limit->where = ("/" / directory.lexically_relative(root)).lexically_normal().string();
      limits.push_back(*limit);
    }
  }
  return limits;
}

std::optional<CgroupMemoryUsage> cgroup_memory_usage(const fs::path& root) {
  const std::vector<MemoryLimit> limits = cgroup_memory_limits(root);
  const auto tightest = std::ranges::min_element(limits, {}, &MemoryLimit::limit);
  if (tightest == limits.end()) {
    return std::nullopt;
  }
  const fs::path directory = root / fs::path(tightest->where).relative_path();
  std::optional<std::uint64_t> peak = read_number(directory / "memory.peak");
  if (!peak) {
    peak = read_number(directory / "memory.max_usage_in_bytes");
  }
  return CgroupMemoryUsage{.limit = tightest->limit, .peak = peak, .where = tightest->where};
}

}  // namespace k3
