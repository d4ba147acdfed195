// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/policy/predict"
)

const (
	// fileName in the state directory; a file that cannot be read is set aside under asideName.
	fileName  = "prediction.json"
	asideName = "prediction.json.broken"
	version   = 1
	// maxBytes bounds what is read: more than 4000 models, each of which takes less than 4 KiB, about 2 where use is spread widely.
	maxBytes = 16 << 20
)

// snapshot is the file: all models at once, each in upstream's checkpoint format.
type snapshot struct {
	Version int               `json:"version"`
	Models  []json.RawMessage `json:"models"`
}

// load reads the snapshot. No file is no model and no problem; a file that is none of ours is set aside; of a file with
// broken models the others are returned.
func load(dir string) (models []predict.Checkpoint, problems []error) {
	path := filepath.Join(dir, fileName)
	atomicfile.Clean(path)
	b, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{err}
	}
	models, problems, err = parse(b)
	if err == nil {
		for i, p := range problems {
			problems[i] = fmt.Errorf("read %s: %w", path, p)
		}
		return models, problems
	}
	aside := filepath.Join(dir, asideName)
	err = fmt.Errorf("read %s: %w; it is set aside as %s", path, err, aside)
	if mv := os.Rename(path, aside); mv != nil {
		err = errors.Join(err, fmt.Errorf("set the file aside: %w", mv))
	}
	return nil, []error{err}
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read prediction models: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// parse reads a snapshot; problems are those of single models, err is the whole file's.
func parse(b []byte) (models []predict.Checkpoint, problems []error, err error) {
	if len(b) > maxBytes {
		return nil, nil, fmt.Errorf("longer than %d bytes", maxBytes)
	}
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, nil, fmt.Errorf("parse snapshot: %w", err)
	}
	if s.Version != version {
		return nil, nil, fmt.Errorf("format version %d, this koordlet reads %d", s.Version, version)
	}
	for i, raw := range s.Models {
		c, err := ParseCheckpoint(raw)
		if err != nil {
			problems = append(problems, fmt.Errorf("model %d: %w", i, err))
			continue
		}
		models = append(models, c)
	}
	return models, problems, nil
}

// save replaces the snapshot. The bytes are on the disk before the name is theirs: a day of learning is worth an fsync
// every ten minutes. A model that cannot be written is left out and reported. It is written model by model: as a whole it would be in memory
// several times over, on a node of many pods some megabytes each.
func save(dir string, models []predict.Checkpoint) error {
	if err := atomicfile.Dir(dir); err != nil {
		return err
	}
	var problems []error
	err := replace(filepath.Join(dir, fileName), func(w *bufio.Writer) error {
		// The first error of a write is Flush's, too.
		fmt.Fprintf(w, `{"version":%d,"models":[`, version)
		comma := ""
		for _, c := range models {
			b, err := FormatCheckpoint(c)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			_, _ = w.WriteString(comma)
			_, _ = w.Write(b)
			comma = ","
		}
		_, _ = w.WriteString("]}\n")
		return w.Flush()
	})
	return errors.Join(append(problems, err)...)
}

// replace is atomicfile.Write with an fsync, piece by piece.
func replace(path string, write func(*bufio.Writer) error) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	err = write(bufio.NewWriter(f))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, atomicfile.Bare(err))
	}
	return nil
}
