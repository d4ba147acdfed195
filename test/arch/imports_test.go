// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/koord-rt/koord-rt"

// pkg is what `go list -json` tells of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Doc        string
	Name       string
}

// allowed maps a room to the rooms of ours that it may reach, directly or through others. A room that is not listed
// fails the test: a new room needs a line here and on the architecture page. Shared rooms of one level (policy, kernel,
// adapt, daemon) do not appear in each other's lists.
var allowed = map[string][]string{
	"api/strategy": {},
	"api/protocol": {"api/strategy"},
	"api/config":   {"api/protocol", "api/strategy"},
	"api/slo":      {"api/protocol", "api/strategy"},
	"api/apitest":  {},
	"model":        {"api/protocol", "api/strategy"},
	"policy":       {"model", "api/protocol", "api/strategy"},
	"kernel":       {"model", "api/protocol", "api/strategy"},
	"adapt":        {"model", "api"},
	"daemon":       {"model", "api"},
	"engine":       {"api", "model", "policy", "kernel", "daemon"},
	"nri-plugin":   {"api", "model", "policy", "kernel", "adapt", "daemon", "engine"},
	"cri-proxy":    {"api", "model", "policy", "kernel", "adapt", "daemon", "engine"},
	"koordlet":     {"api", "model", "policy", "kernel", "adapt", "daemon", "engine"},
	"koordctl":     {"api", "model", "policy", "kernel", "adapt", "daemon"},
	"cluster":      {"api", "model", "policy", "daemon"},
	"test":         {"api", "model", "policy", "kernel", "adapt", "daemon", "engine", "nri-plugin", "cri-proxy", "koordlet", "koordctl"},
	"hack":         {"api", "model", "policy", "kernel", "adapt", "daemon", "cluster"},
	"packaging":    {"api"},

	// CRD types with apimachinery; api/slo and api/config themselves stay without.
	"api/slo/v1alpha1":            {"api/protocol", "api/strategy", "api/slo", "api/scheduling/v1alpha1"},
	"api/config/v1alpha1":         {},
	"api/scheduling/v1alpha1":     {"api/protocol", "api/strategy"},
	"api/schedulingsigs/v1alpha1": {},
	"api/koordinator/v1alpha1":    {"api/schedulingsigs/v1alpha1"},
	"api/quota/v1alpha1":          {"api/schedulingsigs/v1alpha1"},
	"api/analysis/v1alpha1":       {},
	"api/topology/v1alpha1":       {},
	"api/topology/v1alpha2":       {},
}

// foreign names what must not be reachable from a room, whoever imports it.
var foreign = map[string][]string{
	"api/protocol": {"net/http", "os/exec", "k8s.io/"},
	"api/strategy": {"net/http", "os/exec", "k8s.io/"},
	"api/slo":      {"k8s.io/"},
	"api/config":   {"k8s.io/"},
	"model":        {"net/http", "os/exec", "k8s.io/", "github.com/containerd/", "google.golang.org/grpc"},
	"policy":       {"net/http", "os/exec", "k8s.io/", "github.com/containerd/", "google.golang.org/grpc"},
	"kernel":       {"net/http", "os/exec", "k8s.io/", "github.com/containerd/", "google.golang.org/grpc"},
	"adapt":        {"k8s.io/client-go", "k8s.io/apimachinery"},
	"daemon":       {"k8s.io/client-go", "k8s.io/apimachinery"},
	"engine":       {"k8s.io/", "github.com/containerd/nri", "google.golang.org/grpc"},
	"nri-plugin":   {"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/kubernetes"},
	"cri-proxy":    {"k8s.io/", "github.com/containerd/nri", "google.golang.org/grpc"},
	"koordlet":     {"k8s.io/", "github.com/containerd/nri", "google.golang.org/grpc"},
	"koordctl":     {"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/kubernetes"},
	"cluster":      {"k8s.io/kubernetes", "github.com/containerd/"},
}

// excused lists what a package may reach against the list above, and why.
var excused = map[string][]string{
	// The D-Bus library can start a session bus; we only dial the system's. Nothing else in kernel reaches exec.
	"kernel/systemd": {"os/exec"}, "kernel/wire": {"os/exec"},
}

// direct names what a room must not import itself (fmt reaches os, so transitivity says nothing there).
var direct = map[string][]string{
	"policy": {"os", "net", "log", "log/slog", "time", "math/rand", "math/rand/v2", "sync", "context", "fmt"},
	"model":  {"os", "net", "log", "log/slog", "sync", "context", "math/rand/v2"},
	"kernel": {"os/exec"}, "adapt": {"os/exec"}, "daemon": {"os/exec"}, "engine": {"os/exec"}, "nri-plugin": {"os/exec"}, "cri-proxy": {"os/exec"}, "koordlet": {"os/exec"}, "koordctl": {"os/exec"}, "cluster": {"os/exec"},
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Doc,Name", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// ours returns the path below the module, or false for foreign packages.
func ours(path string) (string, bool) {
	return strings.CutPrefix(path, module+"/")
}

// room is the first element, the first two below api, or a version there.
func room(rel string) string {
	parts := strings.SplitN(rel, "/", 3)
	if parts[0] == "api" && len(parts) > 2 && strings.HasPrefix(parts[2], "v1") {
		return rel
	}
	if parts[0] == "api" && len(parts) > 1 {
		return "api/" + parts[1]
	}
	return parts[0]
}

func under(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")
	})
}

func TestImportDirections(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range list(t) {
		rel, mine := ours(p.ImportPath)
		if !mine {
			continue
		}
		r := room(rel)
		seen[r] = true
		may, known := allowed[r]
		if !known {
			t.Errorf("%s: room %q has no line in the import matrix", rel, r)
			continue
		}
		for _, d := range p.Deps {
			if drel, mine := ours(d); mine && room(drel) != r && !under(drel, may) {
				t.Errorf("%s reaches %s: %s may reach only %v", rel, drel, r, may)
			}
			if under(d, foreign[r]) && !slices.Contains(excused[rel], d) {
				t.Errorf("%s reaches %s, forbidden for %s", rel, d, r)
			}
		}
		for _, d := range p.Imports {
			if slices.Contains(direct[r], d) {
				t.Errorf("%s imports %s, forbidden for %s", rel, d, r)
			}
		}
	}
	for r := range allowed {
		if !seen[r] && r != "hack" {
			t.Errorf("room %q of the import matrix does not exist", r)
		}
	}
}

// TestCommandsHaveNoFakes: what stands in for a kernel, a runtime or an API server in tests, in packages whose names end in "test", is in no
// program that is installed.
func TestCommandsHaveNoFakes(t *testing.T) {
	t.Parallel()
	commands := 0
	for _, p := range list(t) {
		rel, mine := ours(p.ImportPath)
		if !mine || p.Name != "main" || room(rel) == "test" {
			continue
		}
		commands++
		for _, d := range p.Deps {
			if drel, mine := ours(d); mine && strings.HasSuffix(drel, "test") {
				t.Errorf("%s reaches %s, which is for tests", rel, drel)
			}
		}
	}
	if commands < 5 {
		t.Errorf("only %d commands were found: the search is wrong", commands)
	}
}

func TestSiblingsOfAdaptStayApart(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		rel, mine := ours(p.ImportPath)
		if !mine || room(rel) != "adapt" {
			continue
		}
		for _, d := range p.Imports {
			// adapt/unary carries bytes for whoever speaks gRPC; it knows no message.
			if drel, mine := ours(d); mine && room(drel) == "adapt" && drel != "adapt/unary" {
				t.Errorf("%s imports its sibling %s", rel, drel)
			}
		}
	}
}

func TestPackageDocs(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		rel, mine := ours(p.ImportPath)
		if !mine {
			continue
		}
		if len(p.Doc) < 20 || strings.Contains(p.Doc, "SPDX") {
			t.Errorf("%s has no package documentation", rel)
		}
		switch p.Name {
		case "util", "utils", "common", "helper", "helpers", "misc", "base", "types", "impl", "lib", "tools":
			t.Errorf("%s: package name %q says nothing", rel, p.Name)
		}
	}
}
