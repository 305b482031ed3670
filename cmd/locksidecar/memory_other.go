//go:build !linux

package main

// forgetProgram is for Linux alone.
func forgetProgram() {}
