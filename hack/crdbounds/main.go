// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command crdbounds bounds the quantities in the definitions that controller-gen has made. Its pattern for a Kubernetes quantity takes
// "1e-99999999", for which Kubernetes' parser computes that power of ten, and a million digits, which it cannot write within
// minutes: a single stored object would stop every program that lists its kind. It takes "1e1.5" too, which no parser reads.
//
// Input: the folder with the definitions. Output: the same files. It must not be imported.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// generated is controller-gen's pattern.
	generated = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	// bounded is more than quantities need: their smallest unit is 1e-9, their largest value 9.2e18.
	bounded = `^(\+|-)?(([0-9]{1,40}(\.[0-9]{0,40})?)|(\.[0-9]{1,40}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdbounds FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crdbounds:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read definition: %w", err)
		}
		n := strings.Count(string(text), generated)
		if n == 0 {
			continue
		}
		count += n
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), generated, bounded)), 0o644); err != nil {
			return fmt.Errorf("write definition: %w", err)
		}
	}
	if count == 0 {
		return errors.New("no pattern of a quantity found in " + dir + ": controller-gen writes another one now")
	}
	return nil
}
