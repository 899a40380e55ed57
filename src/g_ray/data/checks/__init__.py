"""Do poses, depth and pictures of a data set fit together? Asked before anybody trains on it."""
