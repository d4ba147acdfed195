// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// unpackImage makes of a docker archive with one image of one layer a folder that CRI-O pulls by the transport "dir": manifest,
// version, and each blob under its digest. https://github.com/containers/image, containers-transports(5).
func unpackImage(archive, dir string) error {
	files, err := readTar(archive)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	var images []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &images); err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	if len(images) != 1 || len(images[0].Layers) != 1 {
		return fmt.Errorf("read image: want one of one layer: %+v", images)
	}
	config, layer := files[images[0].Config], files[images[0].Layers[0]]
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": blob("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{blob("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for name, data := range map[string][]byte{
		"version": []byte("Directory Transport Version: 1.1\n"), "manifest.json": manifest, digest(config): config, digest(layer): layer,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	if err != nil {
		return fmt.Errorf("lay out image: %w", err)
	}
	return nil
}

func blob(mediaType string, data []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": "sha256:" + digest(data), "size": len(data)}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func readTar(path string) (map[string][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}
