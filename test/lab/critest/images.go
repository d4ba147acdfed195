// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/registry"
)

// What the images are made of: a change of either makes them anew.
var (
	//go:embed images.go
	imagesSource string
	//go:embed server/main.go
	serverSource string
)

// pauseRepository is the path of the sandbox image, the lab's own.
const pauseRepository = "critest-pause"

const serverPackage = "github.com/koord-rt/koord-rt/test/lab/critest/server"

// images lists the images that critest 1.34.0 asks for (pkg/validate/consts.go, pkg/framework/util.go,
// pkg/validate/security_context_linux.go), by path and tag: the registry answers for
// every registry name. What a spec expects of its image stands beside it.
//
// One is missing: test-image-digest is asked for by the digest of its maker's bytes.
func images(busybox []byte, applets []string, server []byte) ([]registry.Image, error) {
	base, err := registry.Layer(baseFiles(busybox, applets))
	if err != nil {
		return nil, err
	}
	program := func(path string, mode int64) []byte {
		layer, layerErr := registry.Layer([]registry.File{{Name: path, Mode: mode, Data: server}})
		if layerErr != nil {
			err = layerErr
		}
		return layer
	}
	// Two images must never be one by content: their tags would be seen on each other.
	named := func(name string) []byte {
		layer, layerErr := registry.Layer([]registry.File{{Name: "image", Mode: 0o644, Data: []byte(name)}})
		if layerErr != nil {
			err = layerErr
		}
		return layer
	}
	const e2e, tools = "e2e-test-images/", "k8s-staging-cri-tools/"
	nginx := program("usr/sbin/nginx", 0o755)
	list := []registry.Image{
		// The lab's usual sandbox is a busybox that sleeps; a spec looks for sleeping processes.
		{Repository: pauseRepository, Tag: "1", Layers: [][]byte{program("usr/bin/pause", 0o755)}, Entrypoint: []string{"/usr/bin/pause"}},
		{Repository: e2e + "busybox", Tag: "1.29-2", Layers: [][]byte{base, program("usr/bin/pgrep", 0o755), program("usr/bin/ipcs", 0o755)}},
		{
			// Process 1 shows "master process", and the process file exists.
			Repository: e2e + "nginx", Tag: "1.14-2", Layers: [][]byte{base, nginx},
			Entrypoint: []string{"/usr/sbin/nginx", "-pidfile", "/var/run/nginx.pid", "-title", "nginx: master process"},
		},
		{
			Repository: e2e + "httpd", Tag: "2.4.39-4", Layers: [][]byte{base, program("usr/sbin/httpd", 0o755)},
			Entrypoint: []string{"/usr/sbin/httpd", "-say", "httpd is ready"}, // looked for in its log
		},
		{
			Repository: e2e + "nonewprivs", Tag: "1.3", Layers: [][]byte{base, program("usr/bin/nonewprivs", 0o4755)},
			Entrypoint: []string{"/usr/bin/nonewprivs"}, // set-uid root
		},
		{
			Repository: tools + "hostnet-nginx-" + runtime.GOARCH, Tag: "latest", Layers: [][]byte{base, nginx},
			Entrypoint: []string{"/usr/sbin/nginx", "-listen", ":12003"},
		},
		{Repository: tools + "test-image-predefined-group", Tag: "latest", Layers: [][]byte{base, named("group")}, User: "1000"},
		{Repository: tools + "test-image-user-uid", Tag: "latest", Layers: [][]byte{base}, User: "1002"},
		{Repository: tools + "test-image-user-username", Tag: "latest", Layers: [][]byte{base}, User: "www-data"},
		{Repository: tools + "test-image-user-uid-group", Tag: "latest", Layers: [][]byte{base}, User: "1003:users"},
		{Repository: tools + "test-image-user-username-group", Tag: "latest", Layers: [][]byte{base}, User: "www-data:www-data"},
		{Repository: tools + "test-image-latest", Tag: "latest", Layers: [][]byte{base, named("latest")}},
		{Repository: tools + "test-image-tag", Tag: "test", Layers: [][]byte{base, named("test")}},
		{Repository: tools + "test-image-tag", Tag: "all", Layers: [][]byte{base, named("all")}},
	}
	for _, n := range []string{"1", "2", "3"} {
		list = append(list,
			registry.Image{Repository: tools + "test-image-" + n, Tag: "latest", Layers: [][]byte{base, named(n)}},
			registry.Image{Repository: tools + "test-image-tags", Tag: n, Layers: [][]byte{base, named("tags")}})
	}
	return list, err
}

// baseFiles is busybox with the users and groups that specs look up.
func baseFiles(busybox []byte, applets []string) []registry.File {
	const (
		passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n" +
			"www-data:x:33:33:www-data:/:/bin/false\ndefault-user:x:1000:1000::/:/bin/sh\n"
		group = "root:x:0:\nusers:x:100:\nwww-data:x:33:\ndefault-user:x:1000:\n" +
			"group-defined-in-image:x:50000:default-user\nnogroup:x:65534:\n"
	)
	var files []registry.File
	for _, d := range []string{"bin", "dev", "etc", "mnt", "proc", "root", "sys", "usr", "usr/bin", "usr/sbin", "var", "var/run"} {
		files = append(files, registry.File{Name: d, Dir: true, Mode: 0o755})
	}
	files = append(files,
		registry.File{Name: "tmp", Dir: true, Mode: 0o1777},
		registry.File{Name: "etc/passwd", Mode: 0o644, Data: []byte(passwd)},
		registry.File{Name: "etc/group", Mode: 0o644, Data: []byte(group)},
		registry.File{Name: "bin/busybox", Mode: 0o755, Data: busybox})
	for _, a := range applets {
		if a != "busybox" {
			// Hard links: a spec masks /bin/ls, which must not be busybox itself.
			files = append(files, registry.File{Name: "bin/" + a, Mode: 0o755, Link: "bin/busybox"})
		}
	}
	return files
}

// storage returns the registry's storage folder in the cache, filled with all images.
func storage(ctx context.Context, c *parts.Cache) (string, error) {
	if err := c.InstallDebian(ctx, "busybox-static"); err != nil {
		return "", err
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", fmt.Errorf("read busybox: %w", err)
	}
	sum := sha256.Sum256(busybox)
	spec := parts.Spec{
		Name: "critest-images", Version: "1",
		Recipe: strings.Join([]string{imagesSource, serverSource, runtime.Version(), hex.EncodeToString(sum[:])}, "\x00"),
	}
	return c.Ensure(ctx, spec, func(ctx context.Context, dir string) error {
		server, err := buildServer(ctx)
		if err != nil {
			return err
		}
		applets, err := exec.CommandContext(ctx, "/bin/busybox", "--list").Output()
		if err != nil {
			return fmt.Errorf("list busybox applets: %w", err)
		}
		list, err := images(busybox, strings.Fields(string(applets)), server)
		if err != nil {
			return err
		}
		return pushAll(ctx, c, dir, list)
	})
}

// buildServer compiles the images' own program, static.
func buildServer(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "koord-rt-critest-")
	if err != nil {
		return nil, fmt.Errorf("create build folder: %w", err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "server")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, serverPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build images' program: %w: %s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read images' program: %w", err)
	}
	return data, nil
}

// pushAll fills a storage folder through a registry that runs only for that.
func pushAll(ctx context.Context, c *parts.Cache, dir string, list []registry.Image) (err error) {
	address, err := lab.FreeAddress()
	if err != nil {
		return err
	}
	log := filepath.Join(dir, "push.log")
	r, err := registry.Start(ctx, registry.Options{Cache: c, Storage: dir, Address: address, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := r.Close(); err == nil {
			err = closeErr
		}
	}()
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := r.WaitReady(ready); err != nil {
		return err
	}
	for _, i := range list {
		if _, err := r.Push(ctx, i); err != nil {
			return err
		}
	}
	return nil
}
