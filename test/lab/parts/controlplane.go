// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Names of the parts of the control plane lane. Scheduler, controller manager and
// kubectl are not needed to run pods that name their node.
const (
	Etcd              = "etcd"                    // etcd
	KubeAPIServer     = "kube-apiserver"          // kube-apiserver
	Kubelet           = "kubelet"                 // kubelet
	KubeScheduler     = "kube-scheduler"          // kube-scheduler
	KubeControllers   = "kube-controller-manager" // kube-controller-manager
	Kubectl           = "kubectl"                 // kubectl
	CNI               = "cni"                     // bridge, host-local, loopback, portmap ...
	UpstreamKoordlet  = "upstream-koordlet"       // koordlet, lib/ with libpfm
	UpstreamManager   = "upstream-manager"        // koord-manager
	kubernetesModule  = "k8s.io/kubernetes"
	koordinatorModule = "github.com/koordinator-sh/koordinator"
)

// ControlPlaneNames lists the parts of the control plane lane.
func ControlPlaneNames() []string {
	return []string{Etcd, KubeAPIServer, Kubelet, CNI, Kubectl, KubeScheduler, KubeControllers, UpstreamKoordlet, UpstreamManager}
}

// builder is the recipe of a part.
type builder interface {
	recipe() string
	// fetch downloads what a build compiles, to where the build finds it: Go's module cache, installed packages.
	fetch(ctx context.Context, c *Cache) error
	build(ctx context.Context, c *Cache, dir string) error
}

// controlPlanePart is the recipe table of the lane; ok is false for other lanes' parts.
func controlPlanePart(name string, v map[string]string) (b builder, version string, ok bool) {
	switch name {
	case Etcd:
		// The module's root is the main package: go build names the file after the folder.
		return renamedBuild{goBuild{Packages: []string{"go.etcd.io/etcd/server/v3"}, Version: "v" + v["ETCD"]}, "server", "etcd"}, v["ETCD"], true
	case KubeAPIServer, Kubelet, KubeScheduler, KubeControllers, Kubectl:
		return stagedBuild{Command: name, Version: v["KUBERNETES"]}, v["KUBERNETES"], true
	case CNI:
		return debianTree{Package: "containernetworking-plugins", Keep: "usr/lib/cni"}, v["CNI"], true
	case UpstreamKoordlet:
		return koordletBuild{Version: v["UPSTREAM_KOORDINATOR"]}, v["UPSTREAM_KOORDINATOR"], true
	case UpstreamManager:
		return ownModuleBuild{
			Module: koordinatorModule, Version: v["UPSTREAM_KOORDINATOR"], Package: "./cmd/koord-manager", File: "koord-manager",
		}, v["UPSTREAM_KOORDINATOR"], true
	}
	return nil, "", false
}

// renamedBuild is a Go program whose file gets another name.
type renamedBuild struct {
	goBuild
	From, To string
}

func (r renamedBuild) recipe() string { return fmt.Sprintf("%s %s", r.goBuild.recipe(), r.To) }

func (r renamedBuild) build(ctx context.Context, c *Cache, dir string) error {
	if err := r.goBuild.build(ctx, c, dir); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, r.From), filepath.Join(dir, r.To)); err != nil {
		return fmt.Errorf("name the program: %w", err)
	}
	return nil
}

// stagedBuild is one command of k8s.io/kubernetes. Its go.mod replaces the staging
// modules by folders that the published module does not have; the modules published
// from these folders, v0.MINOR.PATCH for v1.MINOR.PATCH, take their place.
type stagedBuild struct {
	Command string // required: kubelet
	Version string // required: 1.36.3
}

// recipe leaves this file's text out on purpose: what changes the result is here.
func (s stagedBuild) recipe() string {
	return fmt.Sprintf("%#v CGO_ENABLED=0 -trimpath -s -w %s %s", s, s.ldflags(), runtime.Version())
}

func (s stagedBuild) ldflags() string {
	major, rest, _ := strings.Cut(s.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var b strings.Builder
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		fmt.Fprintf(&b, " -X %[1]s.gitVersion=v%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, s.Version, major, minor)
	}
	return strings.TrimSpace(b.String())
}

func (s stagedBuild) fetch(ctx context.Context, _ *Cache) error { return s.inModule(ctx, nil) }

func (s stagedBuild) build(ctx context.Context, _ *Cache, dir string) error {
	return s.inModule(ctx, func(mod string, env []string) error {
		return runQuiet(ctx, mod, env, "go", "build", "-trimpath", "-buildvcs=false", noDebug,
			"-ldflags", "-s -w "+s.ldflags(), "-o", dir+"/", s.pkg())
	})
}

func (s stagedBuild) pkg() string { return kubernetesModule + "/cmd/" + s.Command }

func (s stagedBuild) inModule(ctx context.Context, use func(mod string, env []string) error) error {
	_, patch, ok := strings.Cut(s.Version, ".")
	if !ok {
		return fmt.Errorf("version %q of Kubernetes: want MAJOR.MINOR.PATCH", s.Version)
	}
	_, goMod, err := downloadModule(ctx, kubernetesModule, "v"+s.Version)
	if err != nil {
		return err
	}
	staging, err := localReplacements(ctx, goMod)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "module koord-rt.test/part\n\ngo 1.26\n\nrequire %s v%s\n", kubernetesModule, s.Version)
	for _, m := range staging {
		fmt.Fprintf(&text, "replace %s => %s v0.%s\n", m, m, patch)
	}
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off"}
	return inModule(ctx, text.String(), nil, env, []string{"get", s.pkg() + "@v" + s.Version}, use)
}

// downloadModule fetches a module; root is its unpacked, read-only folder.
func downloadModule(ctx context.Context, module, version string) (root, goMod string, err error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Dir = os.TempDir() // outside every module: ours must not be touched
	out, err := cmd.Output()
	var got struct{ Dir, GoMod, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || err != nil || got.Error != "" {
		return "", "", fmt.Errorf("download %s %s: %v %v %s", module, version, err, jsonErr, got.Error)
	}
	return got.Dir, got.GoMod, nil
}

// localReplacements lists the modules that a go.mod replaces by folders.
func localReplacements(ctx context.Context, goMod string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "edit", "-json", goMod).Output()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", goMod, err)
	}
	var file struct {
		Replace []struct {
			Old struct{ Path string }
			New struct{ Path string }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&file); err != nil {
		return nil, fmt.Errorf("read %s: %w", goMod, err)
	}
	var modules []string
	for _, r := range file.Replace {
		if strings.HasPrefix(r.New.Path, "./") {
			modules = append(modules, r.Old.Path)
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("read %s: no staging modules found", goMod)
	}
	return modules, nil
}
