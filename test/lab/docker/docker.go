// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package docker runs a private Docker daemon on this machine: Debian's dockerd with its own containerd, folders, socket
// and cgroup root, without networks, with the lab's image loaded.
//
// Input: Options. Output: a Daemon with paths, the docker client, and Kill, Restart and Close; before it, where it is asked for, a
// Proxy. Errors are returned, so tests, demonstrations and benchmarks use it alike. It needs root and must not import any
// package under test.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/folder"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Options of a Daemon; the zero value is good.
type Options struct {
	Cache         *parts.Cache // optional; default parts.Open with progress on standard error
	SystemdCgroup bool         // the systemd cgroup driver, which needs systemd as PID 1; default cgroupfs
}

// Daemon is a running, stopped or killed dockerd.
type Daemon struct {
	Dir    string // /tmp/krdXXXX
	Socket string // the Engine API
	Log    string // dockerd's log, containerd's included
	Cgroup string // cgroup root of all containers, "koordrt-krdXXXX" or "koordrt_krdXXXX.slice"; Close removes it with all below
	Bin    string // folder into which Docker is unpacked

	image      string
	systemd    bool
	containerd *process // nil before the first start
	dockerd    *process // nil while it is down
}

// Start unpacks what is missing, starts dockerd, loads parts.ImageRef and waits until the API answers. On error nothing is
// left behind.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("start dockerd: needs root")
	}
	if err := RemoveStale(ctx); err != nil {
		return nil, err
	}
	if o.Cache == nil {
		cache, err := parts.Open(parts.Options{Progress: os.Stderr})
		if err != nil {
			return nil, err
		}
		o.Cache = cache
	}
	bin, err := Part(ctx, o.Cache)
	if err != nil {
		return nil, err
	}
	image, err := o.Cache.File(ctx, parts.Image, "image.tar")
	if err != nil {
		return nil, err
	}
	dir, err := labs().Make()
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		Dir: dir, Bin: bin, image: image,
		Socket: filepath.Join(dir, "docker.sock"),
		Log:    filepath.Join(dir, "dockerd.log"),
		Cgroup: folder.Cgroup(dir), systemd: o.SystemdCgroup,
	}
	if d.systemd {
		d.Cgroup = slice(dir)
	}
	if err := d.Restart(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if _, err := d.Docker(ctx, d.Socket, nil, "load", "--quiet", "--input", d.image); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Restart starts dockerd on the same folders and waits until it answers. A running one is stopped first; containers live on.
func (d *Daemon) Restart(ctx context.Context) error {
	if err := d.Stop(); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(d.Dir, name) }
	files := map[string]string{
		"config/daemon.json": "{}\n",
		"config/containerd.toml": fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n[debug]\naddress = %q\n",
			at("containerd/root"), at("containerd/state"), at("containerd.sock"), at("debug.sock")),
	}
	for name, text := range files {
		if _, err := os.Stat(at(name)); err == nil {
			continue // a caller may have changed it
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o755), os.WriteFile(at(name), []byte(text), 0o644)); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	driver, parent := "cgroupfs", "/"+d.Cgroup+"/docker"
	if d.systemd {
		driver, parent = "systemd", d.Cgroup
	}
	var err error
	if d.containerd == nil { // apart from dockerd, as on a node: it lives on when dockerd is killed
		if d.containerd, err = d.launch("usr/bin/containerd", "--config", at("config/containerd.toml")); err != nil {
			return err
		}
	}
	d.dockerd, err = d.launch("usr/sbin/dockerd",
		"--config-file", at("config/daemon.json"), "--data-root", at("data"), "--exec-root", at("exec"), "--pidfile", at("dockerd.pid"),
		"--containerd", at("containerd.sock"), "--host", "unix://"+d.Socket, "--iptables=false", "--ip6tables=false", "--bridge=none", "--live-restore",
		"--oom-score-adjust", "0", // lowering it needs CAP_SYS_RESOURCE
		"--exec-opt", "native.cgroupdriver="+driver, "--cgroup-parent", parent)
	if err != nil {
		return err
	}
	if err := d.waitReady(ctx, 3*time.Minute); err != nil {
		text, _ := os.ReadFile(d.Log) // the error below is the one to tell
		return fmt.Errorf("start dockerd: %w; end of its log:\n%s", err, tail(text))
	}
	return nil
}

// environ puts the unpacked programs and libraries first.
func (d *Daemon) environ() []string {
	path := filepath.Join(d.Bin, "usr/bin") + ":" + filepath.Join(d.Bin, "usr/sbin") + ":" + os.Getenv("PATH")
	lib := filepath.Join(d.Bin, "usr/lib/x86_64-linux-gnu") + ":" + filepath.Join(d.Bin, "lib/x86_64-linux-gnu")
	// The client's folder keeps a configuration of the user's away.
	return append(os.Environ(), "PATH="+path, "LD_LIBRARY_PATH="+lib, "DOCKER_CONFIG="+filepath.Join(d.Dir, "client"), "DOCKER_BUILDKIT=0")
}

func (d *Daemon) waitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var nd net.Dialer
		return nd.DialContext(ctx, "unix", d.Socket)
	}}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("ping answers %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-d.dockerd.done:
			return errors.New("it has ended")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Kill ends dockerd with SIGKILL, as a crash would; containers live on.
func (d *Daemon) Kill() error { return d.end(syscall.SIGKILL) }

// Stop ends dockerd with SIGTERM, after 15 s with SIGKILL; containers live on (--live-restore).
func (d *Daemon) Stop() error { return d.end(syscall.SIGTERM) }

func (d *Daemon) end(sig syscall.Signal) error {
	if d.dockerd == nil {
		return nil
	}
	p := d.dockerd
	d.dockerd = nil
	return p.end(sig, 15*time.Second)
}

// Command is the docker client against a socket, the daemon's or a proxy's, not yet started.
func (d *Daemon) Command(ctx context.Context, socket string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(d.Bin, "usr/bin/docker"), append([]string{"--host", "unix://" + socket}, args...)...)
	cmd.Env = d.environ()
	return cmd
}

// Docker runs the docker client and returns its standard output without the last newline. The error carries what it wrote
// on standard error.
func (d *Daemon) Docker(ctx context.Context, socket string, stdin io.Reader, args ...string) (string, error) {
	cmd := d.Command(ctx, socket, args...)
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("run docker %s: %w: %s", strings.Join(args, " "), err, tail([]byte(errs.String())))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
