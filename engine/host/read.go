// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// maxFile bounds a configuration or strategy file.
const maxFile = 1 << 20

// ReadStrategy reads a strategy file; nil without error when there is none.
func ReadStrategy(path string) (*strategy.Spec, error) {
	if path == "" {
		return nil, nil
	}
	data, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read strategy: %w", err)
	}
	spec, err := strategy.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("strategy %s: %w", path, err)
	}
	return &spec, nil
}

// ReadFile reads a configuration or strategy file of at most 1 MiB.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is no regular file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}
