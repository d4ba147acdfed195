// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package critest runs the conformance specs of cri-tools against a CRI socket and
// compares two runs.
//
// Input: sockets; a private containerd whose images come from a registry on loopback.
// Output: per-spec results. Everything lives in network and IPC namespaces of its own:
// the pods' bridge, the firewall rules of port mappings, critest's fixed host ports and
// the shared memory that it leaves meet nothing of the machine and vanish with them. It must not import any package under test.
package critest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/registry"
)

// registryAddress is fixed: the network namespace is the lab's own.
const registryAddress = "127.0.0.1:5000"

// Lab is a containerd that critest can test, with its registry and pod network.
type Lab struct {
	Host     *host.Host
	cache    *parts.Cache
	space    *netspace
	registry *registry.Registry
	runs     int
}

// Start builds what is missing and starts registry and containerd 2.x in a new network
// namespace. PreStart of the options is called after the lab's own. On error nothing is left.
func Start(ctx context.Context, o host.Options) (*Lab, error) {
	if !slices.Contains([]string{"", parts.Containerd24, parts.Containerd20}, o.Version) {
		return nil, fmt.Errorf("start critest lab: the drop-in is for containerd 2, not %s", o.Version)
	}
	if o.Cache == nil {
		cache, err := parts.Open(parts.Options{Progress: os.Stderr})
		if err != nil {
			return nil, err
		}
		o.Cache = cache
	}
	images, cni, err := fetch(ctx, o)
	if err != nil {
		return nil, err
	}
	// The folders first: a registry is stale once its folder is gone.
	if err := errors.Join(host.RemoveStale(ctx), registry.RemoveStale()); err != nil {
		return nil, err
	}
	space, err := newNetspace()
	if err != nil {
		return nil, err
	}
	l := &Lab{cache: o.Cache, space: space}
	after := o.PreStart
	o.PreStart = func(p host.Paths) error {
		if err := l.prepare(ctx, p, images, cni); err != nil {
			return err
		}
		if after != nil {
			return after(p)
		}
		return nil
	}
	err = space.do(func() error {
		var err error
		l.Host, err = host.Start(ctx, o)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// fetch builds every part, now: the lab's network namespace reaches nothing.
func fetch(ctx context.Context, o host.Options) (images, cni string, err error) {
	// The plugin portmap calls iptables, specs call ipcmk (util-linux).
	if err := o.Cache.InstallDebian(ctx, "iptables", "util-linux"); err != nil {
		return "", "", err
	}
	version := o.Version
	if version == "" {
		version = parts.Containerd24
	}
	for _, p := range []string{version, parts.Runc, parts.Image, parts.DockerRegistry, parts.Critest} {
		if _, err := o.Cache.Get(ctx, p); err != nil {
			return "", "", err
		}
	}
	if cni, err = o.Cache.Get(ctx, parts.CNI); err != nil {
		return "", "", err
	}
	images, err = storage(ctx, o.Cache)
	return images, cni, err
}

// prepare starts the registry and writes what containerd needs: pod network, plugins
// and where to pull from. It runs in the network namespace.
func (l *Lab) prepare(ctx context.Context, p host.Paths, images, cni string) error {
	var err error
	l.registry, err = registry.Start(ctx, registry.Options{
		Cache: l.cache, Storage: images, Address: registryAddress, Log: filepath.Join(p.Dir, "registry.log"),
	})
	if err != nil {
		return err
	}
	hosts, conf := filepath.Join(p.Dir, "registry"), filepath.Join(p.Dir, "cni")
	if err := registry.WriteHosts(hosts, registryAddress); err != nil {
		return err
	}
	network := fmt.Sprintf(network, filepath.Join(p.Dir, "cni-data"))
	dropIn := fmt.Sprintf(dropIn, hosts, registryAddress+"/"+pauseRepository+":1", cni, conf)
	for file, text := range map[string]string{
		filepath.Join(conf, "10-lab.conflist"):      network,
		filepath.Join(p.DropIns, "50-critest.toml"): dropIn,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("prepare critest lab: %w", err)
		}
	}
	return nil
}

// network is the pods' bridge with host ports: CNI specification 1.0, plugins bridge,
// host-local and portmap. The argument is host-local's folder.
const network = `{
 "cniVersion": "1.0.0", "name": "lab",
 "plugins": [
  {"type": "bridge", "bridge": "krt0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.230.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
 ]
}
`

// dropIn is merged over the configuration of package host; the arguments are the
// registry hosts folder, the sandbox image, the CNI plugins and the CNI configurations.
const dropIn = `version = 3
[plugins."io.containerd.cri.v1.images".registry]
config_path = %q
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%q]
conf_dir = %q
`

// Do runs f on a thread inside the lab's network namespace; processes that f starts
// itself (not in other goroutines) live there.
func (l *Lab) Do(f func() error) error { return l.space.do(f) }

// Run runs critest in the lab's network namespace; Cache and Work are set by the lab.
func (l *Lab) Run(ctx context.Context, o Options) (Result, error) {
	l.runs++
	o.Cache, o.Work = l.cache, filepath.Join(l.Host.Dir, fmt.Sprintf("critest-%d", l.runs))
	if err := os.Mkdir(o.Work, 0o755); err != nil {
		return Result{}, fmt.Errorf("create critest folder: %w", err)
	}
	var r Result
	err := l.space.do(func() error {
		ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		if err := l.Host.CRI().WaitReady(ready); err != nil {
			return err
		}
		var err error
		r, err = Run(ctx, o)
		return err
	})
	return r, err
}

// Close ends containerd with all pods, the registry and the network namespace.
func (l *Lab) Close() error {
	var errs []error
	if l.Host != nil {
		errs = append(errs, l.Host.Close())
	}
	if l.registry != nil {
		errs = append(errs, l.registry.Close())
		l.registry = nil
	}
	return errors.Join(append(errs, removeEmptyRoot(), l.space.close())...)
}

// removeEmptyRoot removes the cgroup root that containerd takes for pods without a
// parent, as critest's are, unless a runtime of the machine has containers there.
func removeEmptyRoot() error {
	tree, err := cgroups.Detect()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range tree.Mounts() {
		err := unix.Rmdir(filepath.Join(m, "k8s.io")) // containerd's namespace of CRI
		if err != nil && !slices.Contains([]error{unix.ENOENT, unix.ENOTEMPTY, unix.EBUSY}, err) {
			errs = append(errs, fmt.Errorf("remove cgroup root of critest: %w", err))
		}
	}
	return errors.Join(errs...)
}
