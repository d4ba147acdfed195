// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// ImageRef is the name of the lab's only image: a static busybox that sleeps. It is
// the pause image too.
const ImageRef = "koord-rt.test/busybox:1"

// imageLayout changes when the archive's layout does.
const imageLayout = "docker-archive, one layer, applets as symlinks in /bin, layout 1"

// image writes image.tar, a docker archive (what "docker save" writes) of Debian's
// busybox-static: https://github.com/moby/docker-image-spec.
func (c *Cache) image(ctx context.Context, version string) (string, error) {
	if err := c.InstallDebian(ctx, "busybox-static"); err != nil {
		return "", err
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", fmt.Errorf("read busybox: %w", err)
	}
	sum := sha256.Sum256(busybox)
	spec := Spec{Name: Image, Version: version, Recipe: imageLayout + hex.EncodeToString(sum[:])}
	return c.Ensure(ctx, spec, func(ctx context.Context, dir string) error {
		out, err := exec.CommandContext(ctx, "/bin/busybox", "--list").Output()
		if err != nil {
			return fmt.Errorf("list busybox applets: %w", err)
		}
		layer, err := imageLayer(busybox, strings.Fields(string(out)))
		if err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(dir, "image.tar"))
		if err != nil {
			return fmt.Errorf("create image: %w", err)
		}
		defer f.Close()
		if err := writeImage(f, layer); err != nil {
			return err
		}
		return f.Close()
	})
}

// imageLayer is the image's root file system as a tar, the same bytes for the same input.
func imageLayer(busybox []byte, applets []string) ([]byte, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, d := range []string{"bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var"} {
		mode := int64(0o755)
		if d == "tmp" {
			mode = 0o1777
		}
		if err := putTar(tw, &tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: mode}, nil); err != nil {
			return nil, err
		}
	}
	files := []struct {
		name string
		mode int64
		data []byte
	}{
		{"bin/busybox", 0o755, busybox},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nnobody:x:65534:\n")},
	}
	for _, f := range files {
		if err := putTar(tw, &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode}, f.data); err != nil {
			return nil, err
		}
	}
	for _, a := range applets {
		if a == "busybox" {
			continue
		}
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox", Mode: 0o777}
		if err := putTar(tw, h, nil); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	return buf.Bytes(), nil
}

func writeImage(w io.Writer, layer []byte) error {
	diffID := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      time.Unix(0, 0).UTC(),
		"config": map[string]any{
			"Env": []string{"PATH=/bin"},
			"Cmd": []string{"/bin/sleep", "2147483647"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(diffID[:])}},
	})
	if err != nil {
		return fmt.Errorf("encode image config: %w", err)
	}
	sum := sha256.Sum256(config)
	configName := hex.EncodeToString(sum[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{ImageRef}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("encode image manifest: %w", err)
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{configName, config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := putTar(tw, &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644}, f.data); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

func putTar(tw *tar.Writer, h *tar.Header, data []byte) error {
	h.Size, h.ModTime = int64(len(data)), time.Unix(0, 0)
	if err := tw.WriteHeader(h); err != nil {
		return fmt.Errorf("write tar entry %s: %w", h.Name, err)
	}
	if _, err := tw.Write(data); err != nil {
		return fmt.Errorf("write tar entry %s: %w", h.Name, err)
	}
	return nil
}
