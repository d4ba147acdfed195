// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// NotMounted holds where no filesystem of these types is mounted anywhere (/proc/self/mounts).
func NotMounted(types ...string) Proof {
	return func() (string, error) {
		text, err := os.ReadFile("/proc/self/mounts") // device directory TYPE options, fstab(5)
		if err != nil {
			return "", err
		}
		for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
			if f := strings.Fields(s.Text()); len(f) > 2 && slices.Contains(types, f[2]) {
				return "", fmt.Errorf("%s is mounted at %s", f[2], f[1])
			}
		}
		return fmt.Sprintf("/proc/self/mounts has no filesystem of type %s", strings.Join(types, " or ")), nil
	}
}

// OfType holds where statfs(2) says that the filesystem at path is of the type with this number, NotOfType where not.
func OfType(path string, magic int64) Proof {
	return func() (string, error) {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return "", fmt.Errorf("statfs %s: %w", path, err)
		}
		if int64(st.Type) != magic { // 32 bits on some architectures
			return "", fmt.Errorf("the filesystem at %s is of type %#x, not %#x", path, st.Type, magic)
		}
		return fmt.Sprintf("the filesystem at %s is of type %#x", path, magic), nil
	}
}

// NotOfType is the opposite of OfType; where nothing is at path, that is no such filesystem either.
func NotOfType(path string, magic int64) Proof {
	return func() (string, error) {
		statement, err := OfType(path, magic)()
		if err == nil {
			return "", errors.New(statement)
		}
		return err.Error(), nil
	}
}

// NoFile holds where a kernel filesystem, known by its magic number, has no such file.
func NoFile(path string, magic int64) Proof {
	return func() (string, error) {
		dir := filepath.Dir(path)
		for ; dir != "/"; dir = filepath.Dir(dir) {
			if _, err := os.Lstat(dir); err == nil {
				break
			}
		}
		if _, err := OfType(dir, magic)(); err != nil {
			return "", err
		}
		_, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return err.Error(), nil
		}
		return "", fmt.Errorf("%s is there (%v)", path, err)
	}
}

// NoController holds where the directory of a cgroup v2 does not have the controller (cgroup.controllers).
func NoController(dir, controller string) Proof {
	return func() (string, error) {
		have, err := root.Read(dir + "/cgroup.controllers")
		if err != nil {
			return "", err
		}
		if slices.Contains(strings.Fields(have), controller) {
			return "", fmt.Errorf("%s has the controller %s", dir, controller)
		}
		return fmt.Sprintf("%s has the controllers %q only: its parent does not hand %s down", dir, have, controller), nil
	}
}

// Unbuilt holds where the running kernel was built without the option, CONFIG_…, by its own configuration.
func Unbuilt(option string) Proof {
	return func() (string, error) {
		text, err := KernelConfig()
		if err != nil {
			return "", err
		}
		return unbuilt(text, option)
	}
}

// unbuilt: an option that depends on one that is off is not mentioned at all.
func unbuilt(text, option string) (string, error) {
	line := ConfigLine(text, option)
	switch {
	case !strings.Contains(text, "\nCONFIG_"):
		return "", fmt.Errorf("a kernel configuration without options: %.40q", text)
	case line == "":
		return "the kernel's configuration does not mention " + option, nil
	case line == "# "+option+" is not set":
		return "the kernel's configuration: " + line, nil
	}
	return "", fmt.Errorf("the kernel is built with %s", line)
}

// ConfigLine is the line about an option in a kernel's configuration, "" where it does not mention the option.
func ConfigLine(text, option string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, option+"=") || line == "# "+option+" is not set" {
			return line
		}
	}
	return ""
}

// KernelConfig is the running kernel's configuration: /proc/config.gz, else /boot/config-RELEASE.
func KernelConfig() (string, error) {
	f, err := os.Open("/proc/config.gz")
	if errors.Is(err, fs.ErrNotExist) {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return "", err
		}
		data, err := os.ReadFile("/boot/config-" + unix.ByteSliceToString(u.Release[:]))
		return string(data), err
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(z)
	return string(data), err
}
