// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package host runs a private containerd on this machine: own root, state, sockets,
// NRI, CDI and metrics, built by package parts, with the lab's image loaded; or a
// CRI-O that is given to package parts.
//
// Input: Options. Output: a Host with a CRI client, paths, and Kill, Restart and
// Close. Errors are returned, so tests, demonstrations and benchmarks use it alike.
// It needs root and must not import any package under test.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Options of a Host; the zero value is containerd 2.4 with NRI.
type Options struct {
	Version         string            // optional: parts.Containerd24 (default), Containerd20, Containerd17, Containerd17CDI, Containerd16 (no NRI, no CDI), or CRIO
	Bin             string            // optional: folder of another containerd, configured as one of Version is
	Cache           *parts.Cache      // optional; default parts.Open with progress on standard error
	DisableNRI      bool              // optional: no NRI at all
	RequestTimeout  time.Duration     // optional: NRI plugin_request_timeout, default 2 s
	RegisterTimeout time.Duration     // optional: NRI plugin_registration_timeout, default 5 s
	SystemdCgroup   bool              // optional: runc's systemd cgroup driver; default cgroupfs
	Snapshotter     string            // optional: default overlayfs, native where overlayfs cannot work; not CRI-O's
	RuncPath        string            // optional: another runc; default the lab's
	Handlers        []string          // optional: more runtime handlers, all the same runc
	DropIns         map[string]string // optional: file name in conf.d -> TOML, merged over the configuration; containerd 1.7 replaces a plugin's whole section
	PreStart        func(Paths) error // optional: called before the first start, to place NRI plugins, CDI specs ...
}

// Paths of one Host, all below Dir.
type Paths struct {
	Dir       string // /tmp/krtXXXX
	Config    string // configuration file
	Socket    string // the runtime's CRI socket, containerd's for gRPC as well
	NRISocket string // socket for plugins that connect themselves
	NRIPlugin string // folder of plugins that containerd launches (NN-name)
	NRIConfig string // folder of their configurations
	CDI       string // folder of CDI specs
	DropIns   string // conf.d
	Logs      string // pod logs, for PodSandboxConfig.LogDirectory
	Log       string // containerd's own log
	Runc      string // runc's state root
	Metrics   string // URL of Prometheus metrics
	Bin       string // folder of containerd, containerd-shim-runc-v2 and ctr
	RuncBin   string // runc itself
	Cgroup    string // name of a cgroup root for this lab (kubelet.Options.Root); Close removes it with all below
}

// Host is a running, stopped or killed containerd.
type Host struct {
	Paths
	options Options
	cri     *cri.Client
	process *process // nil while down
}

// Start builds what is missing, starts containerd, loads the image and waits until
// CRI is ready. On error nothing is left behind.
func Start(ctx context.Context, o Options) (*Host, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("start containerd: needs root")
	}
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	if err := RemoveStale(ctx); err != nil {
		return nil, err
	}
	h := &Host{options: o}
	if err := h.prepare(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := h.Restart(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := h.LoadImage(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (o *Options) setDefaults() error {
	if o.Version == "" {
		o.Version = parts.Containerd24
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 2 * time.Second
	}
	if o.RegisterTimeout == 0 {
		o.RegisterTimeout = 5 * time.Second
	}
	if o.Cache == nil {
		cache, err := parts.Open(parts.Options{Progress: os.Stderr})
		if err != nil {
			return err
		}
		o.Cache = cache
	}
	return nil
}

// prepare fetches the parts and writes the folder of the Host.
func (h *Host) prepare(ctx context.Context) error {
	bin, err := h.options.Bin, error(nil)
	if bin == "" {
		if bin, err = h.options.Cache.Get(ctx, h.options.Version); err != nil {
			return err
		}
	}
	runc := h.options.RuncPath
	if runc == "" {
		if runc, err = h.options.Cache.File(ctx, parts.Runc, "runc"); err != nil {
			return err
		}
	}
	dir, err := labs().Make()
	if err != nil {
		return err
	}
	h.Dir = dir // from here on Close has something to remove
	ports, err := lab.FreePorts("127.0.0.1", 1)
	if err != nil {
		return err
	}
	h.Paths = newPaths(dir, ports[0])
	h.Bin, h.RuncBin = bin, runc
	if h.options.Snapshotter == "" {
		h.options.Snapshotter = snapshotter(dir)
	}
	for _, d := range []string{h.NRIPlugin, h.NRIConfig, h.CDI, h.DropIns, h.Logs, h.Runc, filepath.Join(dir, "cni")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("create lab folder: %w", err)
		}
	}
	if h.isCRIO() {
		if err := h.configureCRIO(); err != nil {
			return err
		}
	} else if err := os.WriteFile(h.Config, []byte(h.render()), 0o644); err != nil {
		return fmt.Errorf("write containerd configuration: %w", err)
	}
	for name, text := range h.options.DropIns {
		if err := os.WriteFile(filepath.Join(h.DropIns, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write drop-in: %w", err)
		}
	}
	if h.cri, err = cri.Dial(h.Socket); err != nil {
		return err
	}
	if h.options.PreStart != nil {
		return h.options.PreStart(h.Paths)
	}
	return nil
}

// CRI is a client of containerd's CRI; it survives Kill and Restart.
func (h *Host) CRI() *cri.Client { return h.cri }

// Pid of containerd, 0 while it is down.
func (h *Host) Pid() int {
	if h.process == nil {
		return 0
	}
	return h.process.pid()
}

// Restart starts containerd on the same folders and waits until CRI is ready. A
// running one is stopped first; shims and containers live on.
func (h *Host) Restart(ctx context.Context) error {
	if err := h.Stop(); err != nil {
		return err
	}
	program, args := "containerd", []string{"--config", h.Config}
	if h.isCRIO() {
		program, args = "crio", h.crioArgs()
	}
	p, err := startProcess(h.Log, h.Bin, filepath.Join(h.Bin, program), args...)
	if err != nil {
		return err
	}
	h.process = p
	ready, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	go func() { // a containerd that dies ends the wait at once
		select {
		case <-p.done:
			cancel()
		case <-ready.Done():
		}
	}()
	if err := h.cri.WaitReady(ready); err != nil {
		return fmt.Errorf("start %s: %w; end of its log:\n%s", program, err, tail(h.Log, 3000))
	}
	return nil
}

// Kill ends containerd with SIGKILL, as a crash would; shims and containers live on.
func (h *Host) Kill() error { return h.end(killSignal, 5*time.Second) }

// Stop ends containerd with SIGTERM, after 10 s with SIGKILL; shims and containers live on.
func (h *Host) Stop() error { return h.end(termSignal, 10*time.Second) }

// LoadImage imports parts.ImageRef and waits until CRI knows it; Start has done it.
func (h *Host) LoadImage(ctx context.Context) error {
	if h.isCRIO() {
		return h.pullImage(ctx)
	}
	image, err := h.options.Cache.File(ctx, parts.Image, "image.tar")
	if err != nil {
		return err
	}
	if err := h.Ctr(ctx, "images", "import", "--snapshotter", h.options.Snapshotter, image); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return h.cri.WaitImage(wait, parts.ImageRef)
}

// Ctr runs containerd's ctr in the namespace of CRI.
func (h *Host) Ctr(ctx context.Context, args ...string) error {
	args = append([]string{"--address", h.Socket, "--namespace", "k8s.io"}, args...)
	out, err := exec.CommandContext(ctx, filepath.Join(h.Bin, "ctr"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run ctr %v: %w: %s", args[4:], err, out)
	}
	return nil
}
