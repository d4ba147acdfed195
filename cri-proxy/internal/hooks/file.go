// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/api/config"
)

// Bounds of the directory: real ones hold a file or two of a few hundred bytes.
const (
	maxFile    = 64 << 10
	maxServers = 32
	maxHooks   = 64
	maxName    = 63
	// maxSocketPath is sun_path less its final NUL (unix(7)).
	maxSocketPath = 107
)

// Policy says what a failed call means, in upstream's words.
type Policy string

// The policies. A file without one means Ignore.
const (
	PolicyFail   Policy = "Fail"
	PolicyIgnore Policy = "Ignore"
)

// Endpoint is where a hook server listens: network "unix" with a path, or "tcp" with host:port.
type Endpoint struct{ Network, Address string }

// String is the address as a URL.
func (e Endpoint) String() string { return e.Network + "://" + e.Address }

// Server is one registered hook server.
type Server struct {
	// Name is the file's without .json; it owns the plans as "hook:<name>".
	Name string
	// File is the path of the configuration file.
	File     string
	Endpoint Endpoint
	Policy   Policy
	Hooks    hook.Set
	// Merge says whose value holds where the server and we set one knob.
	Merge config.HookMerge
}

// file is a hook configuration file, as upstream's proxy reads it and koordlet writes it. Unknown keys are skipped.
type file struct {
	RemoteEndpoint string   `json:"remote-endpoint"`
	FailurePolicy  string   `json:"failure-policy"`
	RuntimeHooks   []string `json:"runtime-hooks"`
}

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = fmt.Errorf("larger than %d bytes", maxFile)
)

// readFile reads a configuration file without being held up by a FIFO or filled by a large one.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLarge
	}
	return data, err
}

// parse reads a file's content. notes are what could not be used beside an otherwise good file.
func parse(data []byte, allowRemote bool) (s Server, notes []string, err error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return Server{}, nil, fmt.Errorf("not JSON at byte %d: %w", syntax.Offset, err)
		}
		return Server{}, nil, fmt.Errorf("not a hook configuration: %w", err)
	}
	if s.Endpoint, err = parseEndpoint(f.RemoteEndpoint, allowRemote); err != nil {
		return Server{}, nil, fmt.Errorf("remote-endpoint %.120q: %w", f.RemoteEndpoint, err)
	}
	switch s.Policy = Policy(f.FailurePolicy); s.Policy {
	case PolicyFail, PolicyIgnore:
	case "":
		s.Policy = PolicyIgnore
	default:
		return Server{}, nil, fmt.Errorf("failure-policy %.40q: want %s or %s", f.FailurePolicy, PolicyFail, PolicyIgnore)
	}
	if len(f.RuntimeHooks) > maxHooks {
		return Server{}, nil, fmt.Errorf("runtime-hooks: %d entries, at most %d", len(f.RuntimeHooks), maxHooks)
	}
	for _, name := range f.RuntimeHooks {
		if k, ok := hook.ParseKind(name); ok {
			s.Hooks = s.Hooks.With(k)
		} else if !hook.IsDormant(name) {
			notes = append(notes, fmt.Sprintf("runtime-hooks: unknown hook %.60q is not called", name))
		}
	}
	return s, notes, nil
}

// parseEndpoint reads /path, unix:///path, host:port or tcp://host:port. Upstream knows the path only.
func parseEndpoint(s string, allowRemote bool) (Endpoint, error) {
	address, isUnix := strings.CutPrefix(s, "unix://")
	if isUnix || strings.HasPrefix(s, "/") {
		if !path.IsAbs(address) || path.Clean(address) != address || strings.ContainsRune(address, 0) || len(address) > maxSocketPath {
			return Endpoint{}, fmt.Errorf("want a clean absolute path of at most %d bytes", maxSocketPath)
		}
		return Endpoint{"unix", address}, nil
	}
	address = strings.TrimPrefix(s, "tcp://")
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return Endpoint{}, errors.New("want /path, unix:///path or host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Endpoint{}, errors.New("want a port of 1..65535")
	}
	if ip, err := netip.ParseAddr(host); !allowRemote && host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return Endpoint{}, errors.New("not on this machine: requests carry containers' variables unencrypted; hooks.allowRemote accepts that")
	}
	return Endpoint{"tcp", address}, nil
}

// serverName is the name of a configuration file's server; files that upstream's proxy would not read have none.
func serverName(base string) (name string, ok bool) {
	name, isJSON := strings.CutSuffix(base, ".json")
	return name, isJSON && name != "" && base[0] != '.'
}

// goodName is true for names that can stand in ledgers and metrics.
func goodName(name string) bool {
	return len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}
