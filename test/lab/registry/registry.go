// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package registry serves container images on loopback from a folder: Debian's
// docker-registry, run from the cache, and what fills and names it.
//
// Input: a storage folder, images as tar layers. Output: a running registry, the hosts
// file that sends every pull of a containerd there. It must not import any package
// under test.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Options of a Registry.
type Options struct {
	Cache   *parts.Cache // required
	Storage string       // required: folder of blobs and manifests, created if absent
	Address string       // required: 127.0.0.1:5000, where it listens in the caller's network namespace
	Log     string       // required: file that gets the registry's output
}

// Registry is a running docker-registry.
type Registry struct {
	Address string // as in Options
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has been reaped
	log     string
}

// Start runs the registry. It is a child of the calling thread, so it lives in that
// thread's network namespace; it is not waited for, see WaitReady.
func Start(ctx context.Context, o Options) (*Registry, error) {
	program, err := o.Cache.File(ctx, parts.DockerRegistry, "docker-registry")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Storage, 0o755); err != nil {
		return nil, fmt.Errorf("create registry storage: %w", err)
	}
	config := o.Log + configSuffix
	if err := os.WriteFile(config, []byte(render(o)), 0o644); err != nil {
		return nil, fmt.Errorf("write registry configuration: %w", err)
	}
	log, err := os.Create(o.Log)
	if err != nil {
		return nil, fmt.Errorf("create registry log: %w", err)
	}
	defer log.Close()
	r := &Registry{Address: o.Address, cmd: exec.Command(program, "serve", config), done: make(chan struct{}), log: o.Log}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt leaves it to Close
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start registry: %w", err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // its log says more than its exit status
	}()
	return r, nil
}

func render(o Options) string {
	return fmt.Sprintf("version: 0.1\nlog: {level: warn, accesslog: {disabled: true}}\n"+
		"storage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n", o.Storage, o.Address)
}

// WaitReady polls until the registry answers, it dies or ctx ends. The caller must be
// in the registry's network namespace.
func (r *Registry) WaitReady(ctx context.Context) error {
	for {
		err := r.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-r.done:
			text, _ := os.ReadFile(r.log) // an empty text says enough
			return fmt.Errorf("wait for registry: it ended: %s", text)
		case <-ctx.Done():
			return fmt.Errorf("wait for registry: %w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *Registry) ping(ctx context.Context) error {
	resp, err := request(ctx, http.MethodGet, "http://"+r.Address+"/v2/", "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ping registry: %s", resp.Status)
	}
	return nil
}

// Close ends the registry; its storage stays.
func (r *Registry) Close() error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop registry: %w", err)
	}
	<-r.done
	return nil
}

// WriteHosts fills a folder that containerd takes as registry config_path: every
// image, whatever registry its name says, is pulled from address over http, and
// nothing else is asked.
// Format: containerd docs/hosts.md, folder _default.
func WriteHosts(dir, address string) error {
	into := filepath.Join(dir, "_default")
	if err := os.MkdirAll(into, 0o755); err != nil {
		return fmt.Errorf("create registry hosts folder: %w", err)
	}
	text := fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\ncapabilities = [\"pull\", \"resolve\"]\n", address)
	if err := os.WriteFile(filepath.Join(into, "hosts.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write registry hosts: %w", err)
	}
	return nil
}
