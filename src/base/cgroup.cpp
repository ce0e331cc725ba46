#include "base/cgroup.h"

#include <algorithm>
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

}  // namespace k3
