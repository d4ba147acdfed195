// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const upstreamModule = "github.com/koordinator-sh/koordinator"

// What is compiled inside upstream's module: a program around its package runtimehooks, and a stub for what it reads
// through cgo. They are no package of this module, so no test can stand beside them: TestCritestHookServer builds the program, has each
// of its hooks asked through the proxy, and changes the file that it follows.
var (
	//go:embed testdata/hookserver
	hookServerSource embed.FS
	hookServerFiles  = [...]struct{ from, to string }{
		{"main.go", "cmd/koord-rt-hookserver/main.go"},
		{"perf.go", "pkg/koordlet/util/perf_group/perf_group_nocgo.go"},
	}
)

// hookServerPart builds the program: a small part of upstream's koordlet, whose other packages bring the kubelet's, a time
// series database and cgo.
func hookServerPart(ctx context.Context, c *parts.Cache) (program string, err error) {
	versions, err := lab.Versions()
	if err != nil {
		return "", err
	}
	version := versions["UPSTREAM_KOORDINATOR"]
	recipe := "CGO_ENABLED=0 -s -w " + runtime.Version()
	for _, f := range hookServerFiles {
		text, err := hookServerSource.ReadFile("testdata/hookserver/" + f.from)
		if err != nil {
			return "", fmt.Errorf("read the program's source: %w", err)
		}
		recipe += f.to + string(text)
	}
	dir, err := c.Ensure(ctx, parts.Spec{Name: "upstream-hookserver", Version: version, Recipe: recipe}, func(ctx context.Context, dir string) error {
		return buildHookServer(ctx, version, dir)
	})
	return filepath.Join(dir, "hookserver"), err
}

func buildHookServer(ctx context.Context, version, dir string) (err error) {
	module, err := download(ctx, upstreamModule+"@v"+version)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "koord-rt-hookserver-")
	if err != nil {
		return fmt.Errorf("create build folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, p := range []string{"go.mod", "go.sum", "apis", "cmd", "pkg"} { // its go.mod and go.sum hold
		if err := goTool(ctx, work, "cp", "-r", "--no-preserve=mode", filepath.Join(module, p), work+"/"); err != nil {
			return err
		}
	}
	for _, f := range hookServerFiles {
		text, err := hookServerSource.ReadFile("testdata/hookserver/" + f.from)
		if err != nil {
			return fmt.Errorf("read the program's source: %w", err)
		}
		to := filepath.Join(work, f.to)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
			return fmt.Errorf("write the program's source: %w", err)
		}
	}
	return goTool(ctx, work, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, "hookserver"), "./cmd/koord-rt-hookserver")
}

// download is the folder of a module in Go's cache.
func download(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Dir = os.TempDir() // outside every module
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || err != nil || got.Error != "" {
		return "", fmt.Errorf("download %s: %w %s", module, errors.Join(err, jsonErr), got.Error)
	}
	return got.Dir, nil
}

// goTool runs a program without cgo, by the folder's own go.mod.
func goTool(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, last(out, 3000))
	}
	return nil
}

// HookServerOptions of a HookServer; all are required.
type HookServerOptions struct {
	Cache *parts.Cache
	Dir   string // a folder for it alone, made
	Hooks string // folder in which it registers itself
}

// HookServer is the runtime hook server of upstream's koordlet: its package runtimehooks as it is, told a NodeSLO by a file.
type HookServer struct {
	Registration string // koordlet.json
	Log          string

	program, strategy, socket, cgroups string
	hooks                              string
	daemon                             *daemon // nil while it is down
}

// NewHookServer builds it where that has not been done.
func NewHookServer(ctx context.Context, o HookServerOptions) (*HookServer, error) {
	program, err := hookServerPart(ctx, o.Cache)
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(o.Dir, name) }
	h := &HookServer{
		Registration: filepath.Join(o.Hooks, "koordlet.json"), Log: at("hookserver.log"), hooks: o.Hooks,
		program: program, strategy: at("nodeslo.json"), socket: at("hook.sock"), cgroups: at("cgroup"),
	}
	// Its own writes to pods' cgroups find nothing here: values come by its answers alone.
	if err := os.MkdirAll(h.cgroups, 0o755); err != nil {
		return nil, fmt.Errorf("create folder of the hook server: %w", err)
	}
	return h, nil
}

// Start starts it with that failure policy, and waits until it is registered and answers.
func (h *HookServer) Start(ctx context.Context, policy string) error {
	if err := os.Remove(h.Registration); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start hook server: %w", err)
	}
	var err error
	h.daemon, err = startDaemon(h.Log, h.program, "-logtostderr", "-v=5", "-node-slo="+h.strategy, "-cgroup-root-dir="+h.cgroups+"/",
		"-runtime-hooks-addr="+h.socket, "-runtime-hooks-host-endpoint="+h.socket, "-runtime-hooks-config-path="+h.hooks,
		"-runtime-hooks-failure-policy="+policy, "-enable-nri-runtime-hook=false", "-runtime-hooks-reconcile-interval=1h")
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		if _, err = os.Stat(h.Registration); err == nil {
			var c net.Conn
			if c, err = new(net.Dialer).DialContext(ready, "unix", h.socket); err == nil {
				return c.Close()
			}
		}
		select {
		case <-h.daemon.done:
		case <-ready.Done():
		case <-time.After(20 * time.Millisecond):
			continue
		}
		text, _ := os.ReadFile(h.Log) // an empty text says enough
		return errors.Join(fmt.Errorf("start hook server: %w; end of its log:\n%s", err, last(text, 3000)), h.Kill())
	}
}

// Says gives it a NodeSLO's spec in JSON; its log tells when it has taken it in.
func (h *HookServer) Says(spec string) error {
	next := h.strategy + ".new"
	if err := errors.Join(os.WriteFile(next, []byte(spec), 0o644), os.Rename(next, h.strategy)); err != nil {
		return fmt.Errorf("write the hook server's NodeSLO: %w", err)
	}
	return nil
}

// Kill ends it at once; its registration stays.
func (h *HookServer) Kill() error {
	if h.daemon == nil {
		return nil
	}
	err := h.daemon.kill()
	h.daemon = nil
	return err
}
