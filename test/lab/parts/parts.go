// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab"
)

// Names of the parts of the host lane, in the order in which they are worth building.
const (
	Containerd24 = "containerd-2.4" // containerd, containerd-shim-runc-v2, ctr
	Runc         = "runc"           // runc, static with seccomp
	Crictl       = "crictl"         // crictl
	Image        = "image"          // image.tar, see ImageRef
	Containerd20 = "containerd-2.0" // as Containerd24
	Containerd17 = "containerd-1.7" // as Containerd24
	// Containerd17CDI is the first 1.7 that applies CDI devices of NRI.
	Containerd17CDI = "containerd-1.7-cdi"
	StressNG        = "stress-ng" // stress-ng with its libraries and their loader, see StressCommand
	IPRoute2        = "iproute2"  // ip and tc with their libraries and their loader, see Loader
)

// CRIO is crio, conmon and pinns. The lab has no recipe for it, Go's module proxy does not serve it: whoever has one names its folder
// in $KOORD_RT_PARTS. It is not in Names.
const CRIO = "cri-o"

// Names lists the parts that Get knows.
func Names() []string {
	list := []string{Containerd24, Runc, Crictl, Image, Containerd20, Containerd17, Containerd17CDI, StressNG, IPRoute2}
	list = append(list, NRIRuntimeNames()...)
	list = append(list, ProxyLaneNames()...)
	return append(list, ControlPlaneNames()...)
}

// Get returns the folder of a part, building it if needed.
func (c *Cache) Get(ctx context.Context, name string) (string, error) {
	if dir, ok := c.given[name]; ok {
		return dir, nil
	}
	versions, err := lab.Versions()
	if err != nil {
		return "", err
	}
	if name == Image {
		return c.image(ctx, versions["IMAGE"])
	}
	b, version, err := recipeOf(name, versions)
	if err != nil {
		return "", err
	}
	spec := Spec{Name: name, Version: version, Recipe: b.recipe()}
	return c.Ensure(ctx, spec, func(ctx context.Context, dir string) error { return b.build(ctx, c, dir) })
}

// Fetch downloads what the build of a part needs, so that a later Get only compiles: the network is slow when the CPUs
// are idle, and the other way round. Parts that are not compiled are built.
func (c *Cache) Fetch(ctx context.Context, name string) error {
	versions, err := lab.Versions()
	if err != nil {
		return err
	}
	if name == Image || c.given[name] != "" {
		_, err := c.Get(ctx, name)
		return err
	}
	b, version, err := recipeOf(name, versions)
	if err != nil {
		return err
	}
	if _, ok := b.(debianTree); ok {
		_, err := c.Get(ctx, name)
		return err
	}
	if isDir(filepath.Join(c.root, Spec{Name: name, Version: version, Recipe: b.recipe()}.Folder())) {
		return nil
	}
	if err := b.fetch(ctx, c); err != nil {
		return fmt.Errorf("fetch %s %s: %w", name, version, err)
	}
	return nil
}

// recipeOf is how a part is made, and its version.
func recipeOf(name string, versions map[string]string) (builder, string, error) {
	if b, version, ok := controlPlanePart(name, versions); ok {
		return b, version, nil
	}
	if b, version, ok := nriRuntimePart(name, versions); ok {
		return b, version, nil
	}
	if b, version, ok := proxyLanePart(name, versions); ok {
		return b, version, nil
	}
	switch name {
	case StressNG:
		return installedBuild{Package: "stress-ng", Programs: []string{"/usr/bin/" + stressProgram}}, versions["STRESS_NG"], nil
	case IPRoute2:
		return installedBuild{Package: "iproute2", Programs: []string{"/sbin/ip", "/sbin/tc"}}, versions["IPROUTE2"], nil
	}
	return goPart(name, versions)
}

// File returns the path of one file of a part: Runc "runc", Image "image.tar" ...
func (c *Cache) File(ctx context.Context, part, file string) (string, error) {
	dir, err := c.Get(ctx, part)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, file), nil
}

// goPart is the recipe table of the parts that are Go programs.
func goPart(name string, v map[string]string) (builder, string, error) {
	switch name {
	case Containerd24:
		return containerd("github.com/containerd/containerd/v2", v["CONTAINERD_2_4"]), v["CONTAINERD_2_4"], nil
	case Containerd20:
		return containerd("github.com/containerd/containerd/v2", v["CONTAINERD_2_0"]), v["CONTAINERD_2_0"], nil
	case Containerd17:
		return containerd("github.com/containerd/containerd", v["CONTAINERD_1_7"]), v["CONTAINERD_1_7"], nil
	case Containerd17CDI:
		return containerd("github.com/containerd/containerd", v["CONTAINERD_1_7_CDI"]), v["CONTAINERD_1_7_CDI"], nil
	case Runc:
		return goBuild{
			Packages: []string{"github.com/opencontainers/runc"},
			Version:  "v" + v["RUNC"],
			// Static, so that the same binary runs in a VM whose root has no libraries.
			Tags:    "netgo osusergo seccomp",
			LDFlags: "-extldflags -static -X main.version=" + v["RUNC"],
			CGO:     true,
			Debian:  []string{"gcc", "libc6-dev", "pkg-config", "libseccomp-dev"},
		}, v["RUNC"], nil
	case Crictl:
		return crictl(v), v["CRICTL"], nil
	}
	if name == CRIO {
		return nil, "", fmt.Errorf("part %[1]s is not made here: give a folder with crio, conmon and pinns as KOORD_RT_PARTS=%[1]s=FOLDER", CRIO)
	}
	return nil, "", fmt.Errorf("part %q is unknown; known: %s", name, strings.Join(Names(), " "))
}

func containerd(module, version string) goBuild {
	return goBuild{
		Packages: []string{
			module + "/cmd/containerd", module + "/cmd/containerd-shim-runc-v2", module + "/cmd/ctr",
		},
		Version: "v" + version,
		// Snapshotters that need cgo, tools or kernel modules that the lab does not use, and exporters of traces.
		Tags:    "no_btrfs no_devmapper no_zfs no_aufs no_tracing",
		LDFlags: "-X " + module + "/version.Version=v" + version,
	}
}

// crictl depends on release candidates of two modules that the checksum database
// does not know: the releases of the same number take their place. Of cri-tools
// itself the database has no entry either, so its sums are pinned here.
func crictl(v map[string]string) goBuild {
	return goBuild{
		Packages: []string{"sigs.k8s.io/cri-tools/cmd/crictl"},
		Version:  "v" + v["CRICTL"],
		LDFlags:  "-X sigs.k8s.io/cri-tools/pkg/version.Version=v" + v["CRICTL"],
		Require: map[string]string{
			"k8s.io/cri-api":    "v" + v["CRICTL_CRI_API"],
			"k8s.io/cri-client": "v" + v["CRICTL_CRI_CLIENT"],
		},
		Exclude: map[string]string{
			"k8s.io/cri-api":    "v" + v["CRICTL_CRI_API"] + "-rc.2",
			"k8s.io/cri-client": "v" + v["CRICTL_CRI_CLIENT"] + "-rc.2",
		},
		Sums: []string{
			"sigs.k8s.io/cri-tools v1.34.0 h1:KqL9EJ+WgHtz1HR1exezm91n+o8O2uMLs/eHzHJHAWw=",
			"sigs.k8s.io/cri-tools v1.34.0/go.mod h1:JyYVG0YFsly+p/hfDfmQcQBNFVHh0+BpMTn49YpasMA=",
		},
	}
}

func sortedKeys(m map[string]string) []string {
	return slices.Sorted(maps.Keys(m))
}
